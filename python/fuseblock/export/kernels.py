"""The CUDA part of an exported file: kernels in namespaces, and the calls that launch them.

A plan's launches, for any extents (`shapes.General`), become lines of Python that work the division of each
kernel out and launch it. Device files that several kernels have in common are written once and compiled with
the constants of each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuseblock.export import device_text, fold, tidy
from fuseblock.export.launches import AXES, MEMBER, launch_lines, members
from fuseblock.export.shapes import General, Term

__all__ = ["Kernel", "Kernels"]

_MOST_PARAMETERS = 32
_CONSTANTS = "constants"  # the name of what stands in front of all device files


@dataclass
class Kernel:
    namespace: str
    launch: Mapping[str, Any]
    texts: list[tuple[str, str]]  # file, or none, and its text
    numbers: list[Term]  # that depend on extents
    pieces: list[device_text.Piece] = field(default_factory=list)
    members: list[str] = field(default_factory=list)  # of Arguments, in order
    kept: set[int] = field(default_factory=set)
    parameters: list[tuple[str, str]] = field(
        default_factory=list
    )  # types and names, where it has no Arguments


class Kernels:
    """The kernels of all plans of a file: added first, then `finish`, then written."""

    def __init__(self) -> None:
        """Empty."""
        self.kernels: list[Kernel] = []
        self.functions: set[str] = set()  # of fuseblock.export.divide that launches call
        self.one_text = False  # see _join_constants
        self._files: dict[str, device_text.Piece] = {}
        self._plans: dict[str, tuple[General, list[Kernel]]] = {}

    def add_plan(self, name: str, general: General) -> None:
        """Adds a plan's kernels."""
        kernels = []
        count = len(general.plan["launches"])
        for i, launch in enumerate(general.plan["launches"]):
            base = f"{name}_{launch['name']}"
            if launch["addresses"]:
                base = f"{name}_{i + 1}" if count > 1 else name
            namespace, number = base, 2
            while namespace in {kernel.namespace for kernel in self.kernels}:
                namespace, number = f"{base}{number}", number + 1
            unread = _unread(general.plan, launch)
            kernels.append(self._kernel(namespace, launch, general, unread))
            self.functions.update(
                found for value in launch["values"] for found in re.findall(r"\bdivide_\w+", value["text"])
            )
        self._plans[name] = (general, kernels)

    def _kernel(
        self, namespace: str, launch: Mapping[str, Any], general: General, unread: Collection[str]
    ) -> Kernel:
        numbers: list[Term] = []

        def member(_: int, term: Term) -> str:
            if launch["addresses"] and (text := _by_extents(term, launch["domain"])):
                return text
            if term not in numbers:
                numbers.append(term)
            name = f"a.number{numbers.index(term) + 1}"
            return f"(float){name}" if term.kind == "float" else name

        texts = []
        for piece in launch["pieces"]:
            text = general.fill(piece["text"], member).replace('extern "C" __global__', "__global__")
            file = piece["file"]
            if launch["cluster"] > 1 and "__launch_bounds__" in text:
                bounds = f"__cluster_dims__({launch['cluster']}) __launch_bounds__"
                text = text.replace("__launch_bounds__", bounds)
                file = file.replace(".cu", f"_cluster{launch['cluster']}.cu")
            texts.append((file, text if file else _without_stores(text, unread)))
        for kernel in self.kernels:
            if (kernel.texts, kernel.numbers) == (texts, numbers):
                return kernel
        self.kernels.append(Kernel(namespace, launch, texts, numbers))
        return self.kernels[-1]

    def _join_constants(self) -> None:
        """Constants that all kernels of a device file have stand in front of it.

        Where no two kernels have different ones, and tensors are addresses, all kernels are one text, which
        begins with the constants: `self.one_text`.
        """
        if self.all_addresses():
            heads = [kernel.texts[0][1].splitlines() for kernel in self.kernels]
            lines = list(dict.fromkeys(line for head in heads for line in head if line))
            names = [line.partition(" = ")[0] for line in lines]
            self.one_text = len(set(names)) == len(names)
            if self.one_text:
                for kernel in self.kernels:
                    kernel.texts[0] = (_CONSTANTS, "\n".join(lines) + "\n")
                return
        for file in dict.fromkeys(
            kernel.texts[1][0] for kernel in self.kernels if kernel.launch["addresses"]
        ):
            users = [kernel for kernel in self.kernels if kernel.texts[1][0] == file]
            if len({kernel.texts[0][1] for kernel in users}) == 1:
                for kernel in users:
                    kernel.texts[:2] = [(file, kernel.texts[0][1] + kernel.texts[1][1])]

    def finish(self) -> None:
        """Decides what constants decide, and takes away what the kernels do not use."""
        self._join_constants()
        known = {
            id(kernel): fold.constants("\n".join(text for _, text in kernel.texts)) for kernel in self.kernels
        }
        elements = set().union(
            *(
                device_text.vector_elements(text for file, text in each.texts if not file)
                for each in self.kernels
            )
        )
        files: dict[str, str] = {}
        emitted: dict[tuple[int, int], str] = {}
        for k, kernel in enumerate(self.kernels):
            for i, (file, text) in enumerate(kernel.texts):
                if not file:
                    emitted[k, i] = fold.fold(_FORMULA.sub("", text), known[id(kernel)])
                elif file not in files:
                    # Several kernels may have the file: constants that are the same in all of them.
                    users = [known[id(each)] for each in self.kernels if file in dict(each.texts)]
                    common = dict(set.intersection(*(set(each.items()) for each in users)))
                    files[file] = fold.fold(fold.with_sizes(text, elements, common), common, users)
                    files[file] = _without_second_name(files[file], "first", "begin")
        # What is left out leaves more that nothing takes.
        while True:
            self._parse(files, emitted)
            before = (dict(files), dict(emitted))
            kept = set().union(*(kernel.kept for kernel in self.kernels))
            files = {file: self._files[file].whole(kept) for file in files}
            for k, i in emitted:
                emitted[k, i] = self.kernels[k].pieces[i].whole(self.kernels[k].kept)
            texts = tidy.tidied([*files.values(), *emitted.values()], self.all_addresses())
            files = dict(zip(files, texts, strict=False))
            emitted = dict(zip(emitted, texts[len(files) :], strict=True))
            if before == (files, emitted):
                break
        for kernel in self.kernels:
            used = set()
            for piece in kernel.pieces:
                used |= set(re.findall(r"\ba\.(\w+)", piece.text(kernel.kept)))
            for piece in kernel.pieces:
                for declaration in piece.declarations():
                    if declaration.names == {"Arguments"}:
                        declaration.text = _with_members(declaration.text, kernel.numbers, used)
                        kernel.members = members([declaration.text])
                        if kernel.launch["addresses"]:
                            kernel.parameters = _parameters(declaration.text)
                            kernel.members = [name for _, name in kernel.parameters]

    def _parse(self, files: Mapping[str, str], emitted: Mapping[tuple[int, int], str]) -> None:
        """Cuts the texts into declarations and finds those that the kernels reach."""
        self._files = {file: device_text.parse(file, text) for file, text in files.items()}
        for k, kernel in enumerate(self.kernels):
            kernel.pieces = [
                self._files[file] if file else device_text.parse("", emitted[k, i])
                for i, (file, _) in enumerate(kernel.texts)
            ]
            kernel.kept = device_text.pruned(kernel.pieces, kernel.launch["entry"])
        self._share()

    def lines(self, name: str) -> list[str]:
        """The lines of Python that launch a plan's kernels, behind those that allocate inputs and outputs."""
        general, kernels = self._plans[name]
        lines: list[str] = []
        places: dict[int, str] = {}
        for i, kernel in enumerate(kernels):
            lines += launch_lines(general, i, kernel, places, self.keeps())
        if any(re.search(r"\bmultiprocessors\b", line) for line in lines):
            text = "multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count"
            lines.insert(0, text)
        return lines

    def sections(self) -> tuple[dict[str, str], list[tuple[str, list[tuple[str, str]]]]]:
        """Device files by the names of their constants, and for each namespace its parts.

        Files that follow each other in all kernels are one constant. A part is the name of such a constant,
        or none and a text.
        """
        kept = set().union(*(kernel.kept for kernel in self.kernels))
        orders = [
            [piece.file for piece in kernel.pieces if piece.file == "" or _reaches(kernel, piece)]
            for kernel in self.kernels
        ]
        groups: list[list[str]] = []
        for file in dict.fromkeys(file for order in orders for file in order if file):
            last = groups[-1][-1] if groups else ""
            if last and all(_follows(order, last, file) for order in orders):
                groups[-1].append(file)
            else:
                groups.append([file])
        names = {group[0]: _constant(group) for group in groups}
        files = {
            names[group[0]]: device_text.format_cpp("\n".join(self._files[file].text(kept) for file in group))
            for group in groups
        }
        namespaces = []
        for kernel in self.kernels:
            parts: list[tuple[str, str]] = []
            for piece in kernel.pieces:
                if piece.file:
                    if piece.file in names and _reaches(kernel, piece):
                        parts.append((names[piece.file], ""))
                elif text := piece.text(kernel.kept):
                    if kernel.launch["addresses"]:
                        text = _with_parameters(text, kernel.parameters)
                    parts.append(("", device_text.format_cpp(text)))
            namespaces.append((kernel.namespace, parts))
        return files, namespaces

    def text(self) -> str:
        """All kernels as one text: each behind the device files that it is the first to need."""
        kept = set().union(*(kernel.kept for kernel in self.kernels))
        parts: dict[str, str] = {}
        for kernel in self.kernels:
            for piece in kernel.pieces:
                if piece.file:
                    parts.setdefault(piece.file, device_text.format_cpp(piece.text(kept)))
                    continue
                text = _with_parameters(piece.text(kernel.kept), kernel.parameters)
                text = re.sub(rf"\b{kernel.launch['entry']}(?=\()", kernel.namespace, text)
                parts[f"{kernel.namespace}:"] = device_text.format_cpp(text)
        return "\n".join(part.strip("\n") + "\n" for part in parts.values() if part.strip())

    def device(self) -> str:
        """The device code as the compiler is given it."""
        if self.one_text:
            return self.text()
        files, namespaces = self.sections()
        result = ""
        for name, parts in namespaces:
            texts = [files[constant] if constant else text for constant, text in parts]
            result += f"namespace {name} {{\n{''.join(texts)}\n}}\n"
        return result

    def _share(self) -> None:
        """A device file is one text: each kernel keeps of it what any of them takes."""
        kept: set[int] = set()
        while True:
            for kernel in self.kernels:
                own = [piece for piece in kernel.pieces if piece.file and _reaches(kernel, piece)]
                parts = [part for piece in own for each in piece.declarations() for part in each.all_parts()]
                shared = {id(part) for part in parts if id(part) in kept}
                kernel.kept = device_text.pruned(kernel.pieces, kernel.launch["entry"], shared)
            together: set[int] = set().union(*(kernel.kept for kernel in self.kernels))
            if together == kept:
                return
            kept = together

    def all_addresses(self) -> bool:
        """Whether all kernels take tensors as addresses alone."""
        return all(kernel.launch["addresses"] for kernel in self.kernels)

    def _plain_host(self) -> str:
        entries = ", ".join(
            f"(const void*){kernel.namespace}{'' if self.one_text else '::' + kernel.launch['entry']}"
            for kernel in self.kernels
        )
        threads = {kernel.launch["threads"] for kernel in self.kernels}
        assert len(threads) == 1, threads
        text = _PLAIN_LAUNCH_KEEPING if self.keeps() else _PLAIN_LAUNCH
        if all(kernel.launch["shared_bytes"] for kernel in self.kernels):
            text = re.sub(r"  if \(bytes == 0\).*\n", "", text)
        return device_text.format_cpp(text.replace("ENTRIES", entries).replace("THREADS", str(threads.pop())))

    def has_numbers(self) -> bool:
        """Whether a kernel takes numbers that are not whole."""
        return any(kernel.numbers for kernel in self.kernels)

    def keeps(self) -> bool:
        """Whether a kernel has shared memory that its launch asks for."""
        return any(kernel.launch["shared_bytes"] for kernel in self.kernels)

    def host(self) -> str:
        """The function that launches any of the kernels."""
        if self.all_addresses():
            return self._plain_host()
        entries = ", ".join(
            f"(const void*){kernel.namespace}::{kernel.launch['entry']}" for kernel in self.kernels
        )
        return device_text.format_cpp(_LAUNCH.replace("ENTRIES", entries))


_PLAIN_LAUNCH = """
// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, long long* words, unsigned int blocks, cudaStream_t stream) {
  const void* const kernels[] = {ENTRIES};
  void* parameters[32];
  for (int i = 0; i < 32; ++i) parameters[i] = words + i;
  return cudaLaunchKernel(kernels[kernel], blocks, THREADS, parameters, 0, stream);
}
"""

_PLAIN_LAUNCH_KEEPING = """
// Launches one of the kernels; returns CUDA's error. Blocks with shared memory wait for each other.
extern "C" int launch(int kernel, long long* words, unsigned int blocks, int bytes, cudaStream_t stream) {
  const void* const kernels[] = {ENTRIES};
  void* parameters[32];
  for (int i = 0; i < 32; ++i) parameters[i] = words + i;
  if (bytes == 0) return cudaLaunchKernel(kernels[kernel], blocks, THREADS, parameters, 0, stream);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(kernels[kernel], attribute, bytes)) return error;
  return cudaLaunchCooperativeKernel(kernels[kernel], blocks, THREADS, parameters, bytes, stream);
}
"""

# A line of the comment on a sweep; the head of the file has the formulas.
_FORMULA = re.compile(r"^//   (?!->)\w.* = .*\n", re.MULTILINE)

_LAUNCH = """
// Launches one of the kernels; returns CUDA's error, 0 for none.
extern "C" int launch(int kernel, void* arguments, unsigned int blocks, unsigned int threads,
                      unsigned int shared_bytes, int cooperative, cudaStream_t stream) {
  const void* const kernels[] = {ENTRIES};
  const void* entry = kernels[kernel];
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  if (const cudaError_t error = cudaFuncSetAttribute(entry, attribute, (int)shared_bytes)) return error;
  if (!cooperative) return cudaLaunchKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
  return cudaLaunchCooperativeKernel(entry, blocks, threads, &arguments, shared_bytes, stream);
}
"""


def _by_extents(term: Term, domain: Sequence[int | Term]) -> str:
    """A number over `a.samples` and `a.positions`; nothing where it is none."""
    axes = [axis for axis in AXES if axis in term.axes]
    positions = [axis for axis, extent in zip(AXES[2:], domain[2:], strict=True) if isinstance(extent, Term)]
    rest = [axis for axis in axes if axis != "n"]
    if rest not in ([], positions):
        return ""
    factors = [str(term.factor)] if term.factor != 1 else []
    factors += (["a.samples"] if "n" in axes else []) + (["a.positions"] if rest else [])
    product = " * ".join(factors)
    product = f"({product})" if len(factors) > 1 else product
    if not term.inverse:
        return product
    return f"(float)(1.0 / {product})" if term.kind == "float" else f"(1.0 / {product})"


def _reaches(kernel: Kernel, piece: device_text.Piece) -> bool:
    return any(id(each) in kernel.kept for each in piece.declarations())


def _follows(order: Sequence[str], first: str, second: str) -> bool:
    """Whether the second file stands right behind the first, or neither is there."""
    if first not in order:
        return second not in order
    return order[order.index(first) + 1 :][:1] == [second]


def _constant(files: Sequence[str]) -> str:
    if len(files) > 1 and not any(file.endswith(".cu") for file in files):
        return "PRIMITIVES" if files[0] == "types.cuh" else files[0].partition(".")[0].upper()
    stem, _, ending = files[0].partition(".")
    return stem.upper() + ("_KERNEL" if ending == "cu" else "")


def _without_second_name(text: str, second: str, first: str) -> str:
    """Device code that has no second name for a value that has one; comments stay as they are."""
    line = f"  const long long {second} = {first};\n"
    if line not in text:
        return text
    text = text.replace(line, "")
    for match in reversed(list(re.finditer(rf"\b{second}\b", fold.without_comments(text)))):
        text = text[: match.start()] + first + text[match.end() :]
    return text


def _with_members(text: str, numbers: Sequence[Term], used: set[str]) -> str:
    """The text with Arguments of the members that are used, and of the numbers, where it declares them."""
    begin = text.find("struct Arguments {\n")
    if begin < 0:
        return text
    begin = text.index("\n", begin) + 1
    end = text.index("};", begin)
    members = [match.group() for match in MEMBER.finditer(text[begin:end]) if match[1] in used]
    for i, term in enumerate(numbers):
        kind = "long long" if term.kind == "long long" else "double"
        members.append(f"  {kind} number{i + 1};  // {term.text}\n")
    return text[:begin] + "".join(members) + text[end:]


def _parameters(text: str) -> list[tuple[str, str]]:
    """The types and names of the members of Arguments, those of a type beside each other."""
    types: dict[str, list[str]] = {}
    for line in text[text.index("{\n") + 2 : text.index("};")].splitlines():
        match = re.match(r"\s*(.*?) (\w+);", line)
        assert match is not None, line
        types.setdefault(match[1], []).append(match[2])
    return [(kind, name) for kind, names in types.items() for name in names]


def _with_parameters(text: str, parameters: Sequence[tuple[str, str]]) -> str:
    """A kernel's text whose arguments are parameters, in place of a struct of them."""
    assert len(parameters) <= _MOST_PARAMETERS
    text = re.sub(r"// What a launch hands over\.\nstruct Arguments \{.*?\};\n+", "", text, flags=re.DOTALL)
    text = text.replace("const Arguments a", ", ".join(f"{kind} {name}" for kind, name in parameters))
    return re.sub(r"(?<![\w.])a\.(?=\w)", "", text)


def _unread(plan: Mapping[str, Any], launch: Mapping[str, Any]) -> set[str]:
    """What a launch writes that nobody reads: statistics that others take as they are saved, and copies."""
    if not launch["addresses"]:
        return set()
    names = members([piece["text"] for piece in launch["pieces"]])
    users = [number for each in plan["launches"] for number in each["tensors"]]
    found = set()
    for name, number in zip(names, launch["tensors"], strict=False):
        slot = plan["slots"][number]
        unread = slot["kind"] in ("statistic", "stored") and users.count(number) == 1
        copied = slot["kind"] == "output" and "copy_of" in plan["outputs"][slot["number"]]
        if unread or copied:
            found.add(name)
    return found


def _without_stores(text: str, names: Collection[str]) -> str:
    """A kernel's text that does not write to these."""
    for name in names:
        store = rf"\ba\.{name}\[[^\]]*\] = "
        if len(re.findall(rf"\ba\.{name}\b", text)) != len(re.findall(store, text)):
            continue  # it reads them, too
        text = re.sub(rf"^[ \t]*{store}[^=;]*;\n", "", text, flags=re.MULTILINE)
        text = re.sub(store, "", text)
    return re.sub(r"^[ \t]*if \([^\n]*\) \{\n[ \t]*\}\n", "", text, flags=re.MULTILINE)


def general_axes(general: General) -> set[str]:
    """The axes whose extents a plan takes when it runs."""
    return {axis for term in general.terms for axis in term.axes}
