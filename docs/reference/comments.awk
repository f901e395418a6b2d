# Doxygen reads headers through this: it makes the plain comments of this code (`// ...`) those of a reference (`/// ...`).
# A comment at a line's end is of what precedes it, with the lines that continue it in the same column; the one that
# begins a file is of the file. Characters that Doxygen would interpret are escaped, and `code` is set as code.

function quoted(text, parts, n, i, out) {
  gsub(/\\/, "\\\\\\\\", text)
  gsub(/[@%#]/, "\\\\&", text)
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  n = split(text, parts, "`")
  if (n % 2 == 0) return text  # a span of code over two lines
  out = parts[1]
  for (i = 2; i <= n; i++) {
    if (i % 2 == 0) gsub(/[.]/, "\\&#46;", parts[i])  # ends no sentence
    out = out (i % 2 ? "</code>" : "<code>") parts[i]
  }
  return out
}

NR == 1 && /^\/\/ / { print "/// \\file"; in_head = 1 }

/^ *\/\// {
  column = index($0, "//")
  mark = column == trailing ? "///<" : "///"
  print substr($0, 1, column - 1) mark quoted(substr($0, column + 2))
  next
}

{
  if (in_head) { in_head = 0; print "" }
  trailing = 0
  # A string may hold //, as in a URL: only what follows a declaration's end is a comment.
  if (match($0, /[;,{})] +\/\/ /)) {
    at = RSTART + index(substr($0, RSTART), "//") - 1
    trailing = at
    print substr($0, 1, at - 1) "///<" quoted(substr($0, at + 2))
  } else print
}
