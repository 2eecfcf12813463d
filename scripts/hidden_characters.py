"""Write the table of characters that a person does not see as what they are, from Unicode's own data files.

    python scripts/hidden_characters.py FOLDER

FOLDER holds UnicodeData.txt, DerivedCoreProperties.txt and PropList.txt of one version of Unicode, as Debian's package
`unicode-data` brings them to /usr/share/unicode. Both modules are written anew: the server's and the console's.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "src/handrail/contract/hidden_characters.py"
SCRIPT = ROOT / "src/handrail/console/hidden-characters.js"

HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
PROPERTIES = {
    "DerivedCoreProperties.txt": ("Default_Ignorable_Code_Point",),
    "PropList.txt": ("White_Space", "Bidi_Control", "Variation_Selector", "Noncharacter_Code_Point"),
}
# Letters and symbols that are drawn as nothing, or as a box that stands for something else. Unicode has no property for them.
BLANK = {
    0x2800: "BRAILLE PATTERN BLANK",
    0xFFFC: "OBJECT REPLACEMENT CHARACTER",
    0x13441: "EGYPTIAN HIEROGLYPH FULL BLANK",
    0x13442: "EGYPTIAN HIEROGLYPH HALF BLANK",
    0x16FE4: "KHITAN SMALL SCRIPT FILLER",
    0x1D159: "MUSICAL SYMBOL NULL NOTEHEAD",
}
SPACE = 0x20
LAST = 0x10FFFF
WIDTH = 110


def main(folder: Path) -> int:
    core = (folder / "DerivedCoreProperties.txt").read_text(encoding="utf-8")
    version = re.search(r"DerivedCoreProperties-([\d.]+)\.txt", core)
    if version is None:
        print(f"{folder} has no DerivedCoreProperties.txt of Unicode.", file=sys.stderr)
        return 1
    hidden = set(range(LAST + 1)) - set(visible_by_category(folder))
    for name, wanted in PROPERTIES.items():
        hidden.update(with_property((folder / name).read_text(encoding="utf-8"), wanted))
    hidden.update(BLANK)
    hidden.discard(SPACE)
    lines = wrapped(" ".join(written(start, end) for start, end in ranges(sorted(hidden))))
    for path, quote in ((PYTHON, '"""'), (SCRIPT, "`")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r'(UNICODE_VERSION = )"[\d.]*"', rf'\g<1>"{version[1]}"', text, count=1)
        before, _, rest = text.partition(f"RANGES = {quote}")
        after = rest.partition(quote)[2]
        text = f"{before}RANGES = {quote}\n{lines}\n{quote}{after}"
        path.write_text(text, encoding="utf-8")
    return 0


def visible_by_category(folder: Path) -> Iterator[int]:
    """The code points that are assigned to something other than a control, a separator or a private use."""
    first = None
    for line in (folder / "UnicodeData.txt").read_text(encoding="utf-8").splitlines():
        code, name, category, *_ = line.split(";")
        if name.endswith(", First>"):
            first = int(code, 16)
            continue
        start, first = (int(code, 16) if first is None else first), None
        if category not in HIDDEN_CATEGORIES:
            yield from range(start, int(code, 16) + 1)


def with_property(text: str, wanted: tuple[str, ...]) -> Iterator[int]:
    for match in re.finditer(r"^([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*(\w+)", text, re.MULTILINE):
        if match[3] in wanted:
            yield from range(int(match[1], 16), int(match[2] or match[1], 16) + 1)


def ranges(codes: Iterable[int]) -> Iterator[tuple[int, int]]:
    start = end = None
    for code in codes:
        if start is None or end is None:
            start = end = code
        elif code == end + 1:
            end = code
        else:
            yield start, end
            start = end = code
    if start is not None and end is not None:
        yield start, end


def written(start: int, end: int) -> str:
    return f"{start:x}" if start == end else f"{start:x}-{end:x}"


def wrapped(text: str) -> str:
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
