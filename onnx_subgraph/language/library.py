"""The library: every loaded pattern, from the built-in packs and from the user's files.

A pack is a folder with a `pack.yaml` and group folders; a group is a folder of pattern files. The order is fixed: packs as given,
groups and files by name. `headers` reads only what a list shows, without importing onnx.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path

from onnx_subgraph.collection import uncollected
from onnx_subgraph.errors import PatternError, UsageError
from onnx_subgraph.language import spelling
from onnx_subgraph.language.formulas import FORMULA_FILE, built_in_folder, formula_contents
from onnx_subgraph.language.header import Header, header_of, lowered_targets
from onnx_subgraph.language.index import read_index
from onnx_subgraph.language.installed import with_names_resolved
from onnx_subgraph.language.kinds import Contents, Kinds, named, read_kinds
from onnx_subgraph.language.operator import CanonicalOperator
from onnx_subgraph.language.operator_reading import lowered_by, operator_of
from onnx_subgraph.language.own_operator import check_name
from onnx_subgraph.language.pack import PACK_FILE, Pack, read_pack
from onnx_subgraph.language.pattern import Pattern
from onnx_subgraph.language.reading import pattern_of, required
from onnx_subgraph.language.source import content_of
from onnx_subgraph.language.unread import Operators, Unparsed
from onnx_subgraph.paths import StrPath
from onnx_subgraph.values import words

SUFFIXES = (".yaml", ".yml")
"""The ends of the names of pattern files."""


@dataclass(frozen=True)
class Library:
    """The loaded patterns in order, their packs, and the canonical operators by name.

    Raises PatternError for two patterns of one id.
    """

    patterns: tuple[Pattern, ...]
    packs: tuple[Pack, ...] = ()
    operators: Mapping[str, CanonicalOperator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        twice = next((name for name, count in Counter(p.id for p in self.patterns).items() if count > 1), None)
        if twice is not None:
            raise PatternError(f"two patterns of the library have the id `{twice}`", hint="give one of them another id")

    @cached_property
    def _by_id(self) -> dict[str, Pattern]:
        return {pattern.id: pattern for pattern in self.patterns}

    def get(self, id: str) -> Pattern:  # noqa: A002  (the id is called id everywhere)
        """The pattern with this id. Raises UsageError, with the nearest id as a hint."""
        current = self.current(id)
        if current not in self._by_id:
            raise unknown_id(id, self._by_id)
        return self._by_id[current]

    def current(self, id: str) -> str:  # noqa: A002
        """The current id of a pattern: `id` if it exists, else the pattern that `id` was merged into."""
        return id if id in self._by_id else self.renamed.get(id, id)

    @cached_property
    def renamed(self) -> dict[str, str]:
        """Former id → id of the pattern that it was merged into."""
        return renamed(self.patterns)

    def selected(self, target: str, only: str | Iterable[str] = (), skip: str | Iterable[str] = ()) -> tuple[Pattern, ...]:
        """The patterns to search for, given the target and the ids that the user includes or excludes.

        only, skip: a `str` is one id. A built-in pattern is included only if it supports the target or the user names it. Raises
        UsageError for an unknown id, and if no id is left.
        """
        named, left_out = ({self.get(name).id for name in words(names)} for names in (only, skip))
        if named and named <= left_out:
            raise UsageError("every pattern that --only selects is left out by --skip", hint="leave one of the two out")
        chosen = (p for p in self.patterns if (not named or p.id in named) and p.id not in left_out)
        return tuple(p for p in chosen if p.is_for(target) or p.id in named or not is_built_in(p.file))


def load_patterns(paths: StrPath | Iterable[StrPath] = (), *, built_in: bool = True, checked: bool = False) -> Library:
    """Load the patterns of the built-in packs, then those of `paths` (files, groups or packs), and check the latter.

    checked: whether to check the built-in ones as well. They are part of the program, and take longer to check than to read;
    `onnx-subgraph test-patterns` checks them.

    Files with the same contents as in the last call are not parsed again, and give the same objects.
    Raises PatternError, with the place, at the first mistake in a file.
    """
    packs, files = _collect(paths, built_in)
    folder = None if all(file.is_absolute() for file in files) else Path.cwd()
    patterns, operators = _parsed(_contents(files), formula_contents(files), folder, packs, checked)
    return Library(patterns, packs, operators)


@lru_cache(maxsize=32)
@uncollected()
def _parsed(
    files: Contents,
    beside: Contents,
    folder: Path | None,
    packs: tuple[Pack, ...],
    checked: bool,
) -> tuple[tuple[Pattern, ...], Mapping[str, CanonicalOperator]]:
    """The patterns and canonical operators in `files`, those of the user checked.

    beside, folder: the formula files beside the pattern files, and the base folder of relative paths (None where there is none).
    They are only part of the cache key; both are read from disk. packs: the packs of the files.
    checked: whether to check the built-in ones, too; a lowering of the user is checked with every formula of its operator.
    """
    from onnx_subgraph.language.check import check, check_operator

    own = read_kinds(tuple(file for file in files if not is_built_in(str(file[0]))))
    built_in = None if checked else _unread(files, own)
    formulas, operators, lowerings = read_kinds(files) if built_in is None else own
    everything = checked or (built_in is None and bool(own.lowerings))
    changed = frozenset[str]() if built_in is None else built_in.naming(named(own.lowerings, "lowers"))

    def wanted(file: str | Path) -> bool:
        return everything or not is_built_in(str(file)) or str(file) in changed

    made = {operator.name: operator for operator in (operator_of(fields, path) for path, fields in operators)}
    unmade = {} if built_in is None else built_in.operators()
    for path, fields in reversed(lowerings):  # reversed, so that the first file's lowerings come first
        operator = lowered_by(fields, path, Operators(made, unmade))
        made[operator.name] = operator
    known = Operators(made, unmade)
    patterns = [] if built_in is None else built_in.patterns(known, partial(_in_pack, packs=packs), changed)
    for path, fields in formulas:
        pattern = pattern_of(fields, path, len(patterns), known, checked=wanted(path))
        if not is_built_in(str(path)):
            check_name(pattern, required(fields, "id").span, {*known})
        patterns.append(_in_pack(pattern, packs))
    domains = frozenset(pack.domain for pack in packs if pack.domain)
    for operator in made.values():
        if wanted(operator.file):
            check_operator(operator, domains)
    for pattern in patterns:
        if wanted(pattern.file):
            check(pattern, domains)
    return tuple(patterns), known


def _unread(files: Contents, own: Kinds) -> Unparsed | None:
    """The built-in patterns in these files, not parsed yet.

    None where that is not possible: there is no index of these files, or the user's files change what it says.
    """
    for folder in built_in_packs():
        shipped = tuple(file for file in files if file[0].is_relative_to(folder))
        index = read_index(folder, shipped)
        taken = named(own.patterns, "id") | named(own.operators, "operator")
        if index is not None and taken.isdisjoint({*index.operators, *(entry.header.id for entry in index.entries)}):
            return Unparsed(index, shipped)
    return None


def _in_pack(pattern: Pattern, packs: Iterable[Pack]) -> Pattern:
    """The pattern, with the opsets that its pack requires."""
    pack = _pack_of(Path(pattern.file), packs)
    return pattern if pack is None or not pack.opsets else replace(pattern, opsets=pack.opsets)


def _pack_of(file: Path, packs: Iterable[Pack]) -> Pack | None:
    return next((pack for pack in packs if file.is_relative_to(pack.path)), None)


def headers(paths: StrPath | Iterable[StrPath] = (), *, built_in: bool = True) -> tuple[Header, ...]:
    """The headers of the patterns that `load_patterns` gives, read without their blocks and without onnx.

    Raises PatternError, with the place, for a mistake in the keys that are read.
    """
    packs, files = _collect(paths, built_in)
    formulas, operators, lowerings = read_kinds(_contents(files))
    lowered = lowered_targets(fields for _, fields in (*operators, *lowerings))
    return tuple(header_of(fields, path, order, lowered, _origin(path, packs)) for order, (path, fields) in enumerate(formulas))


def _origin(file: Path, packs: Iterable[Pack]) -> str:
    """A description of where a pattern file comes from; "" for a built-in one."""
    pack = _pack_of(file, packs)
    return "" if is_built_in(str(file)) else str(file.parent) if pack is None else f"the pack {pack}"


def renamed(patterns: Iterable[Pattern | Header]) -> dict[str, str]:
    """Former id → id of the pattern that it was merged into."""
    return {former: pattern.id for pattern in patterns for former in pattern.formerly}


def part_of(former: str, current: str) -> str:
    """The message for a pattern that was requested by a former id."""
    return f"the pattern `{former}` is a part of `{current}` now; write that"


def unknown_id(id: str, known: Iterable[str]) -> UsageError:  # noqa: A002
    """The error for an unknown id."""
    hint = spelling.hint(id, known, "`onnx-subgraph list-patterns` shows all patterns")
    if Path(id).suffix in SUFFIXES or Path(id).exists():
        hint = f"this is the id of a pattern; a file or folder is given as `--patterns {id}`"
    return UsageError(f"there is no pattern `{id}`", hint=hint)


def built_in_packs() -> tuple[Path, ...]:
    """The folders of the built-in packs."""
    folder = built_in_folder()
    return () if folder is None else (folder,)


def built_in_contents() -> Contents:
    """The built-in pattern files with their contents."""
    return _contents(_collect((), built_in=True)[1])


@cache
def is_built_in(file: str) -> bool:
    """Whether a pattern file is built in."""
    return any(Path(file).is_relative_to(folder) for folder in built_in_packs())


# Finding files


def _collect(paths: StrPath | Iterable[StrPath], built_in: bool) -> tuple[tuple[Pack, ...], list[Path]]:
    packs: list[Pack] = []
    files: dict[Path, Path] = {}  # resolved path → path as given; a file given twice is read once
    given = with_names_resolved(paths)
    for path in (*(built_in_packs() if built_in else ()), *given):
        if (path / PACK_FILE).is_file():
            packs.append(read_pack(path))
        for file in pattern_files(path, empty=path in built_in_packs()):
            files.setdefault(file.resolve() if given else file, file)
    return tuple(packs), list(files.values())


def pattern_files(path: Path, *, empty: bool = False) -> list[Path]:
    """The pattern files of a file, group or pack; groups and files sorted by name.

    empty: whether it may contain none. Raises PatternError where `path` is missing or contains none.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise PatternError(f"there is no file or folder {path}", hint="give a pattern file, a group or a pack")
    groups = [path, *sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith((".", "_")))]
    found = [
        file
        for group in groups
        for file in sorted(group.iterdir())
        if file.suffix in SUFFIXES and file.name not in (PACK_FILE, FORMULA_FILE) and file.is_file()
    ]
    if not found and not empty:
        packs = ", ".join(str(group) for group in groups[1:] if (group / PACK_FILE).is_file())
        hint = f"give the pack itself: {packs}" if packs else "a pattern is a `.yaml` file in a group folder"
        raise PatternError(f"there are no pattern files in {path}", hint=hint)
    return found


def _contents(files: Iterable[Path]) -> Contents:
    return tuple((file, content_of(file)) for file in files)
