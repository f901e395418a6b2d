// Stands where the NVIDIA driver's library would be found; nothing asks it for anything.
