"""docs/formats.md: describes every member and array that the programs write, and its type.

    formats_test.py OCTET [unittest arguments]

Exit code 77 where there is no GPU to run on; what can be read off the sources is checked anyway.
"""

import json
import pathlib
import re
import struct

import octet_cli
from octet_cli import SMALL, CliTest, GpuTest, octet

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLAIN = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}
NPY = {"|u1": "uint8", "<u2": "uint16", "<i4": "int32", "<f2": "float16", "<f4": "float32"}


class Formats:
    """The tables of docs/formats.md: {heading: {key: type}}."""

    def __init__(self):
        self.tables = {}
        self.text = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
        heading = None
        for line in self.text.splitlines():
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
            if not line.startswith("|") or set(line) <= set("|- "):
                continue
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            table = self.tables.setdefault(heading, {})
            if cells[0].startswith("*all members of*"):
                table.setdefault("", []).append(re.search(r"\[(.+?)\]", cells[0])[1])
            for key in re.findall(r"`([^`]+)`", cells[0]):
                table[key] = cells[1]

    def members(self, heading):
        table = dict(self.tables[heading])
        for other in table.pop("", []):
            table.update(self.members(other))
        return table

    def problems(self, value, heading, where):
        """What of an object its table does not say, or says otherwise."""
        table = self.members(heading)
        found = []
        for key, member in value.items():
            if key in table:
                found += self.wrong_type(member, table[key], f"{where}.{key}")
            else:
                found.append(f"{where}.{key} is not in the table of '{heading}'")
        for key, kind in table.items():
            if key not in value and "optional" not in kind:
                found.append(f"{where}.{key} is missing")
        return found

    def wrong_type(self, value, kind, where):
        kind = kind.replace(", optional", "")
        if kind.endswith(" or null"):
            if value is None:
                return []
            kind = kind.removesuffix(" or null")
        if kind.startswith("array of "):
            if not isinstance(value, list):
                return [f"{where} is no array"]
            kind = kind.removeprefix("array of ")
            return sum((self.wrong_type(each, kind, f"{where}[{i}]")
                        for i, each in enumerate(value)), [])
        if kind.startswith("object of "):
            kind = kind.removeprefix("object of ")
            return sum((self.wrong_type(each, kind, f"{where}.{key}")
                        for key, each in value.items()), [])
        link = re.fullmatch(r"\[(.+)\]\(#(.+)\)", kind)
        if link:
            if not isinstance(value, dict):
                return [f"{where} is no object"]
            return self.problems(value, link[1], where)
        if kind not in PLAIN:
            return [f"{where}: the documented type is '{kind}'"]
        right = isinstance(value, PLAIN[kind]) and (kind == "boolean") == isinstance(value, bool)
        return [] if right else [f"{where} is {value!r}, not: {kind}"]


FORMATS = Formats()


def npy_type(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<H", data[8:10])
    header = data[10:10 + length].decode()
    shape = re.search(r"'shape': \(([^)]*)\)", header)[1]
    return NPY[re.search(r"'descr': '([^']+)'", header)[1]], len(re.findall(r"\d+", shape))


class DocumentTest(CliTest):
    def test_links_lead_somewhere(self):
        headings = {line.lstrip("#").strip() for line in FORMATS.text.splitlines()
                    if line.startswith("#")}
        anchors = {heading.lower().replace(" ", "-").replace(".", "") for heading in headings}
        for name, anchor in re.findall(r"\[([^\]]+)\]\(#([^)]+)\)", FORMATS.text):
            self.assertIn(anchor, anchors, name)

    def test_every_key_in_the_sources(self):
        """Also those of a failure, or of a machine that is not at hand."""
        documented = {key for table in FORMATS.tables.values() for key in table}
        keys = set()
        for source in ["tools/report/report_json.cc", "tools/report/json_parts.cc", "tools/report/perf_report.cc",
                       "tools/report/fused_report.cc", "tools/report/layer_report.cc",
                       "tools/measure/step/dump.cc", "kernels/tuning/tuning.cc", "bench/octet_bench.cc",
                       "bench/step_benchmarks.cc", "bench/session.cc", "bench/gemm_benchmarks.cc", "bench/layer_benchmarks.cc",
                       "tools/commands/gemm_command.cc"]:
            text = (ROOT / source).read_text(encoding="utf-8")
            # Columns of tables have a width behind two strings.
            for pattern in [r"""\{"([a-z]\w+)",(?! "[^"]*", \d)""", r"""\[(?:\w+\()?"(\w+)"\)?\]""",
                            r"""AddCustomContext\("(\w+)\""""]:
                keys |= set(re.findall(pattern, text))
        self.assertGreater(len(keys), 80)
        self.assertEqual(keys - documented, set())

    def test_every_array_in_the_sources(self):
        text = (ROOT / "tools/measure/step/dump.cc").read_text(encoding="utf-8")
        names = re.search(r"kArrays = .*?\{(.*?)\}\)", text, re.DOTALL)[1]
        self.assertEqual(set(re.findall(r'"(\w+)"', names)), set(FORMATS.tables["Arrays"]) - {"name"})


class WrittenTest(GpuTest):
    def written(self, path, heading, *args, code=0):
        result = octet(*args)
        self.assertEqual(result.returncode, code, result.stderr)
        data = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(FORMATS.problems(data, heading, path.name), [])
        return data

    def test_run(self):
        path = self.folder / "run.json"
        for args in [[f"--ranks={self.ranks}", "--ceilings", f"--trace={self.folder}/t.json"],
                     ["--ranks=1", "--ceilings", "--nocheck"]]:
            with self.subTest(args=args):
                self.written(path, "Run report", "run", *SMALL, *args, f"--json={path}")

    def test_soak(self):
        path = self.folder / "soak.json"
        self.written(path, "Soak report", "run", "--soak=1", f"--ranks={self.ranks}",
                     f"--json={path}")

    def test_perf(self):
        path = self.folder / "perf.json"
        shape = ["--experts=16", "--topk=4", "--hidden=64", "-b2", "-n2", "-w1"]
        for args in [[f"-g{self.ranks}", "--strategy=auto,memcpy_peer"], ["-g1", "-c0"]]:
            with self.subTest(args=args):
                self.written(path, "Perf report", "perf", *shape, *args, f"-J{path}")

    def test_fused(self):
        path = self.folder / "fused.json"
        shape = ["--experts=16", "--topk=4", "--hidden=64", "--intermediate=24", "-b2", "-n2", "-w1"]
        for args in [["--operation=dispatch_gemm", "--strategy=direct"],
                     ["--operation=gemm_combine", "-g1", "-c0"]]:
            with self.subTest(args=args):
                data = self.written(path, "Fused report", "perf", *shape, *args, f"-J{path}")
                self.assertGreater(len(data["calls"][0]["measurements"]), 2)

    def test_gemm(self):
        path = self.folder / "gemm.json"
        for args in [["--rows=3,0,9"], ["--rows=5", "--experts=2", "--epilogue=bias"]]:
            with self.subTest(args=args):
                data = self.written(path, "Gemm report", "gemm", *args, "--n=64", "--k=64",
                                    "--iters=1", "--warmup=0", f"--json={path}")
                self.assertGreater(len(data["measurements"]), 0)

    def test_layer(self):
        path = self.folder / "layer.json"
        for args in [["--graph", "--family=qwen2_moe"],
                     ["--contenders=memcpy_peer+cublas,memcpy_peer+cublas_streams"],
                     ["--iters=0", "--nocheck"]]:
            with self.subTest(args=args):
                self.written(path, "Layer report", "layer", "--experts=8", "--hidden=64",
                             "--intermediate=32", "--tokens=3", f"--ranks={self.ranks}",
                             "--iters=1", "--warmup=0", *args, f"--json={path}")

    def test_trace(self):
        path = self.folder / "trace.json"
        for strategy in ["direct", "high_throughput", "low_latency"]:
            with self.subTest(strategy=strategy):
                self.written(path, "Trace", "run", f"--ranks={self.ranks}", *SMALL, "--tokens=9",
                             f"--strategy={strategy}", f"--trace={path}")
        self.written(path, "Trace", "trace", "--operation=gemm", "--rows=3,0,9", "--n=64", "--k=64",
                     "--iters=1", f"--output={path}")

    def test_tuning(self):
        path = self.folder / "tuning.json"
        entry = {"platform": "nvidia", "gpu": "some GPU", "ranks": 8, "rows": [16, 31],
                 "row_bytes": [128, 255]}
        launch = {"blocks": 4, "waves": 2, "row_parts": 1}
        path.write_text(json.dumps({"schema": 1, "entries": [
            {**entry, "strategy": "direct", **launch, "send_blocks": 2},
            {**entry, "strategy": "high_throughput", **launch, "send_waves": 1,
             "combine_send_waves": 1},
            {**entry, "strategy": "auto", "chosen": "direct", "note": "by hand"}],
            "gemm": [{"gpu": "some GPU", "dtype": "fp8", "n": 64, "k": 128, "rows": [17, 32],
                      "activation": "swiglu", "tiles": "few16", "note": "by hand"}]}))
        data = self.written(path, "Tuning", "tune", "-g1", "--experts=8", "--topk=2", "--hidden=64",
                            "-b8", "-n2", "-w1", "--budget=1e-9", "--strategy=direct",
                            f"--output={path}")
        self.assertGreaterEqual(len(data["entries"]), 3)
        self.assertEqual(len(data["gemm"]), 1)

    def test_dump(self):
        path = self.folder / "dump"
        for args in [["--strategy=direct"], ["--format=quantized_fp8", "--received=rank_major"],
                     ["--format=fp8", "--scales=ue8m0", "--duplicates=index", "--hidden=144"],
                     ["--format=bytes", "--dtype=fp16"],
                     ["--received=deduplicated", "--strategy=high_throughput"]]:
            with self.subTest(args=args):
                meta = self.written(path / "meta.json", "meta.json", "run", f"--ranks={self.ranks}",
                                    *SMALL, *args, f"--dump={path}")
                for name, array in meta["arrays"].items():
                    dtype, dimensions = npy_type(path / f"rank0_{name}.npy")
                    self.assertIn(name, FORMATS.tables["Arrays"])
                    self.assertEqual(dtype, array["dtype"], name)
                    self.assertEqual(dimensions, len(array["shape"]), name)
                    documented = FORMATS.tables["Arrays"][name]
                    if documented.startswith("as "):
                        documented = FORMATS.tables["Arrays"]["recv_scales"]
                    self.assertIn(dtype, documented, name)


if __name__ == "__main__":
    octet_cli.run_tests()
