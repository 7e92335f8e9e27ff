"""Reads and writes *.safetensors with NumPy alone, and the folders of several that models are.

A file is eight bytes, the little-endian length of the JSON that follows; that JSON, which has for
each tensor its type, its shape and where its data begin and end; and the data. NumPy has neither
bfloat16 nor 8-bit floats: arrays of them are their bits, uint16 and uint8.
"""

import dataclasses
import json
import math
import struct

import numpy as np

from check_dump import fp8_table, round_to, to_float, to_fp8

INDEX = "model.safetensors.index.json"
BITS = {"BF16": np.uint16, "F16": np.float16, "F32": np.float32, "F8_E4M3": np.uint8,
        "U8": np.uint8, "I64": np.int64, "I32": np.int32}
LONGEST_HEADER = 100_000_000  # what the format allows
BLOCK = 128  # rows, and columns, of FP8 weights that share a scale
SCALES = "_scale_inv"  # behind the name of such weights
OTHER_SCALES = "_scale"  # the same, of folders that others than DeepSeek made
PACKED = "_packed"  # behind the name of INT4 weights
FP8_LARGEST = np.float32(448)


class Damaged(ValueError):
    """A file is not what the format says. The message has the file and what is wrong."""


@dataclasses.dataclass
class Tensor:
    kind: str  # a key of BITS
    array: np.ndarray


def tensor(values, kind):
    """float32 as a tensor, each rounded to the nearest of its kind."""
    values = np.ascontiguousarray(values, np.float32)
    if kind == "BF16":
        return Tensor(kind, round_to(values, bf16=True))
    if kind == "F8_E4M3":
        return Tensor(kind, to_fp8(values, "e4m3fn"))
    return Tensor(kind, values.astype(BITS[kind]))


def floats(stored):
    """The tensor's elements, as float32. Those of FP8 weights are without their scales."""
    if stored.kind == "BF16":
        return to_float(stored.array, bf16=True)
    if stored.kind == "F8_E4M3":
        return fp8_table("e4m3fn")[stored.array]
    return stored.array.astype(np.float32)


def _of_elements(scales, shape):
    """Of each element of a matrix, or of several, the scale of its block."""
    rows, columns = shape[-2:]
    return np.repeat(np.repeat(scales, BLOCK, axis=-2), BLOCK, axis=-1)[..., :rows, :columns]


def quantized(values):
    """float32 [rows][columns] as (FP8 weights, scales), as DeepSeek stores them."""
    rows, columns = values.shape
    blocks = (-(-rows // BLOCK), -(-columns // BLOCK))
    padded = np.zeros((blocks[0] * BLOCK, blocks[1] * BLOCK), np.float32)
    padded[:rows, :columns] = np.abs(values)
    largest = padded.reshape(blocks[0], BLOCK, blocks[1], BLOCK).max(axis=(1, 3))
    scales = np.where(largest == 0, np.float32(1), largest / FP8_LARGEST).astype(np.float32)
    return (tensor(values / _of_elements(scales, values.shape), "F8_E4M3"),
            Tensor("F32", scales))


def quantized_by(values, of_rows):
    """float32 as (FP8 weights, scales): one for each row, or one for all."""
    largest = np.abs(values).max(axis=1 if of_rows else None, keepdims=True)
    scales = tensor(np.maximum(largest / FP8_LARGEST, np.float32(1e-12)), "BF16")
    return tensor(values / floats(scales), "F8_E4M3"), scales


def packed(values, group):
    """float32 [rows][columns] as INT4 in compressed-tensors' form: suffix -> Tensor."""
    rows, columns = values.shape
    groups = values.reshape(rows, columns // group, group)
    scales = to_float(round_to(np.abs(groups).max(axis=2) / np.float32(7.5), bf16=True), bf16=True)
    scales = np.where(scales == 0, np.float32(1), scales)
    numbers = np.clip(np.rint(groups / scales[..., None]), -8, 7).astype(np.int32) + 8
    words = numbers.reshape(rows, columns // 8, 8).astype(np.uint32)
    words = (words << (4 * np.arange(8, dtype=np.uint32))).sum(axis=2, dtype=np.uint32)
    return {PACKED: Tensor("I32", words.view(np.int32)),
            OTHER_SCALES: tensor(scales, "BF16"),
            "_shape": Tensor("I64", np.array([rows, columns]))}


# ---- One file

def write_file(path, tensors):
    """`tensors`: name -> Tensor."""
    header = {"__metadata__": {"format": "pt"}}
    # As the format's own library does, so that all data are aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].array.itemsize, name))
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].array.nbytes
        header[name] = {"dtype": tensors[name].kind, "shape": list(tensors[name].array.shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(np.ascontiguousarray(tensors[name].array).tobytes())


def read_header(path):
    """(name -> (kind, shape, first byte in the file)), checked against the file's size."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        length = file.read(8)
        if len(length) < 8:
            raise Damaged(f"{path}: {size} bytes are no safetensors file")
        (length,) = struct.unpack("<Q", length)
        if length > min(size - 8, LONGEST_HEADER):
            raise Damaged(f"{path}: a header of {length} bytes in a file of {size}")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise Damaged(f"{path}: the header is no JSON: {error}") from error
    header.pop("__metadata__", None)
    found, places = {}, []
    for name, entry in header.items():
        kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        if kind in BITS:
            wanted = math.prod(shape) * np.dtype(BITS[kind]).itemsize
            if end - begin != wanted:
                raise Damaged(f"{path}: {name} has {end - begin} bytes, but its shape needs "
                              f"{wanted}")
        places.append((begin, end, name))
        found[name] = (kind, shape, 8 + length + begin)
    last = 0
    for begin, end, name in sorted(places):
        if begin != last or end < begin:
            raise Damaged(f"{path}: the data of {name} begin at {begin}, not {last}")
        last = end
    if 8 + length + last != size:
        raise Damaged(f"{path}: its tensors end at byte {8 + length + last} of {size}")
    return found


# ---- A folder

def write_folder(folder, tensors, shards=1):
    """Writes the tensors into `shards` files, with an index if there are several."""
    if shards == 1:
        write_file(folder / "model.safetensors", tensors)
        return
    total = sum(stored.array.nbytes for stored in tensors.values())
    parts, filled = [{} for _ in range(shards)], 0
    for name, stored in tensors.items():
        parts[min(shards - 1, filled * shards // total)][name] = stored
        filled += stored.array.nbytes
    files = [f"model-{part + 1:05d}-of-{shards:05d}.safetensors" for part in range(shards)]
    for file, part in zip(files, parts):
        write_file(folder / file, part)
    index = {"metadata": {"total_size": total},
             "weight_map": {name: file for file, part in zip(files, parts) for name in part}}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


class Folder:
    """The tensors of a folder's files. Data are read when they are asked for."""

    def __init__(self, folder):
        self.folder = folder
        self.places = {}
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise Damaged(f"{folder}: no *.safetensors")
        for path in files:
            for name, place in read_header(path).items():
                if name in self.places:
                    raise Damaged(f"{path}: {name} is also in {self.places[name][0]}")
                self.places[name] = (path, *place)
        if (folder / INDEX).exists():
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
            there = {name: place[0].name for name, place in self.places.items()}
            if index != there:
                wrong = sorted(name for name in index.keys() | there.keys()
                               if index.get(name) != there.get(name))
                raise Damaged(f"{folder / INDEX}: not where the files have it: {wrong[:3]}")

    def __contains__(self, name):
        return name in self.places

    def load(self, name):
        if name not in self.places:
            raise Damaged(f"{self.folder}: no tensor {name}")
        path, kind, shape, begin = self.places[name]
        if kind not in BITS:
            raise Damaged(f"{path}: {name} is {kind}")
        array = np.memmap(path, BITS[kind], "r", begin, shape) if math.prod(shape) else \
            np.zeros(shape, BITS[kind])
        return Tensor(kind, np.asarray(array))

    def values(self, name):
        """The elements as float32; those of FP8 and INT4 weights multiplied by their scales."""
        if name not in self.places and name + PACKED in self.places:
            return self.unpacked(name)
        stored = self.load(name)
        if stored.kind != "F8_E4M3":
            return floats(stored)
        if name + OTHER_SCALES in self.places:  # of all, or [rows][1]
            return floats(stored) * floats(self.load(name + OTHER_SCALES))
        scales = self.load(name + SCALES)
        shape = stored.array.shape
        wanted = (*shape[:-2], *(-(-size // BLOCK) for size in shape[-2:]))
        if scales.array.shape != wanted:
            raise Damaged(f"{self.folder}: {name + SCALES} is {scales.array.shape}, not {wanted}")
        return floats(stored) * _of_elements(floats(scales), shape)

    def unpacked(self, name):
        """The elements of INT4 weights times their scales."""
        rows, columns = (int(size) for size in self.load(name + "_shape").array)
        words = self.load(name + PACKED).array.view(np.uint32)
        numbers = (words[..., None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(np.float32)
        scales = floats(self.load(name + OTHER_SCALES))
        numbers = numbers.reshape(rows, scales.shape[1], -1) - np.float32(8)
        return (numbers * scales[..., None]).reshape(rows, columns)
