// An empty library in place of the NVIDIA driver's; it only has to be found.
