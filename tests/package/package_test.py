"""Octet as its users install it: the example that is installed with it, as a project of theirs.

    package_test.py BUILD_DIR CXX [unittest arguments]

BUILD_DIR is a finished build of Octet, CXX the compiler that made it. Without a GPU, what is built
for NVIDIA is not run. For AMD only the headers are tested: a project needs ROCm's CMake package.
"""

import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path()
CXX = ""
PLATFORM = ""
NVCC = shutil.which("nvcc", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin")
CCACHE = ["ccache"] if shutil.which("ccache") else []
SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
STATUSOR = pathlib.Path("/usr/include/absl/status/statusor.h")


def run(*command, cwd=None, env=None):
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        line = " ".join(map(str, command))
        raise AssertionError(f"{line}: exit code {result.returncode}\n{result.stdout}")
    return result.stdout


def has_mpi():
    """Whether this build can run on several nodes."""
    return (BUILD / "tools" / "octet_mpi").exists()


def can_run():
    """Whether there are GPUs of the platform here."""
    return PLATFORM == "emulation" or (
        shutil.which("nvidia-smi") is not None
        and subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0)


def links(folder):
    """Files and links below the folder, in its terms."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()}


HOST_ONLY = """\
#include <cstdio>
#include <string>
#include <vector>
#include "octet/expert_parallel.h"
#include "octet/node.h"
#if __has_include(<hip/hip_runtime_api.h>)
#include <hip/hip_runtime_api.h>
#define GPU(name) hip##name
#else
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#endif
// A token with one expert and weight 1: y is x.
absl::Status Step(octet::ExpertParallel& ep, octet::Rank& rank, char* memory) {
  char *x = memory, *y = memory + 384, *ids = memory + 768, *weights = memory + 784;
  const std::vector<short> row(192, 0x3f80);
  const int choices[] = {rank.rank(), -1};
  const float one[] = {1, 0};
  std::vector<short> result(192);
  if (GPU(Memcpy)(x, row.data(), 384, GPU(MemcpyHostToDevice)) != GPU(Success) ||
      GPU(Memcpy)(ids, choices, 8, GPU(MemcpyHostToDevice)) != GPU(Success) ||
      GPU(Memcpy)(weights, one, 8, GPU(MemcpyHostToDevice)) != GPU(Success)) {
    return absl::InternalError("copy to the GPU");
  }
  const auto received = ep.Dispatch(rank, {.x = x,
                                           .topk_idx = reinterpret_cast<int*>(ids),
                                           .topk_weights = reinterpret_cast<float*>(weights),
                                           .num_tokens = 1});
  if (!received.ok()) return received.status();
  absl::Status status =
      ep.Combine(rank, received->handle, {.expert_out = received->x, .y = y});
  if (status.ok()) status = rank.Synchronize();
  if (!status.ok()) return status;
  if (GPU(Memcpy)(result.data(), y, 384, GPU(MemcpyDeviceToHost)) != GPU(Success) ||
      result != row) {
    return absl::DataLossError("y is not x");
  }
  return status;
}
int main() {
  auto node = octet::Node::Create({.num_ranks = 2});
  if (!node.ok()) return 1;
  octet::EpConfig config;
  config.num_experts = 8;
  config.topk = 2;
  config.hidden = 192;
  config.max_tokens_per_rank = 12;
  const auto ep = octet::ExpertParallel::Create(**node, config);
  if (!ep.ok()) return 1;
  void* memory[2] = {};
  absl::Status status = (*node)->Run([&](octet::Rank& rank) {
    return GPU(Malloc)(&memory[rank.rank()], 1024) == GPU(Success)
               ? absl::OkStatus() : absl::ResourceExhaustedError("no memory");
  });
  if (status.ok()) {
    status = (*node)->Run([&](octet::Rank& rank) {
      return Step(**ep, rank, static_cast<char*>(memory[rank.rank()]));
    });
  }
  std::puts(status.ok() ? "ok" : std::string(status.message()).c_str());
}
"""
HOST_ONLY_PROJECT = """\
cmake_minimum_required(VERSION 3.23)
project(host_only LANGUAGES CXX)
find_package(octet CONFIG REQUIRED)
add_executable(host_only host_only.cc)
target_link_libraries(host_only PRIVATE octet::ep octet::gpu_api)
"""
SEVERAL_NODES = """\
#include <cstdio>
#include <string>
#include "octet/world.h"
int main() {
  const auto world = octet::World::Create({.node = {.num_ranks = 2}});
  std::puts(world.ok() || absl::IsUnimplemented(world.status())
                ? "ok"
                : std::string(world.status().message()).c_str());
}
"""
SEVERAL_NODES_PROJECT = """\
cmake_minimum_required(VERSION 3.23)
project(several_nodes LANGUAGES CXX)
find_package(octet CONFIG REQUIRED COMPONENTS net)
add_executable(several_nodes several_nodes.cc)
target_link_libraries(several_nodes PRIVATE octet::net)
"""


def project_version():
    text = (SOURCE / "CMakeLists.txt").read_text()
    return re.search(r"project\(octet VERSION ([0-9.]+)", text)[1]


# What users include as <octet/NAME.h>: all that is installed. A name that goes breaks users.
PUBLIC_HEADERS = {
    "c/core", "c/functional", "c/layers", "domain", "dtype", "enum_names", "ep_config",
    "expert_parallel", "fp4_format", "fp8", "fp8_format", "fp8_scale", "gemm_tiles", "gpu", "graph",
    "grouped_gemm", "layer_memory", "memory_piece", "model_folder", "moe_layer", "moe_weights",
    "native_fp8", "node", "node_failure", "octet", "peers", "placement", "placement_json",
    "received", "routed_experts", "router", "row_source", "swiglu", "symmetric_heap", "topology",
    "trace", "types/weight_format", "world",
}


class InstalledTest(unittest.TestCase):
    root = None  # outside of the source tree, where none of its headers are found by accident
    prefix = None  # of all tests, none of which changes what is there

    def setUp(self):
        if InstalledTest.root is None:
            InstalledTest.root = pathlib.Path(tempfile.mkdtemp(prefix="octet_package_")).resolve()
            unittest.addModuleCleanup(shutil.rmtree, InstalledTest.root)
            if CCACHE:
                # Paths below the root are hashed as relative ones, so that what an earlier run has
                # compiled is found although its root had another name.
                for language in ["C", "CXX", "HIP", "CUDA"]:
                    os.environ[f"CMAKE_{language}_COMPILER_LAUNCHER"] = "ccache"
                os.environ["CCACHE_BASEDIR"] = str(InstalledTest.root)
                os.environ["CCACHE_NOHASHDIR"] = "1"
        self.folder = InstalledTest.root / self.id().rsplit(".", 1)[1]
        self.folder.mkdir()
        self.addCleanup(shutil.rmtree, self.folder)

    def installed(self):
        if InstalledTest.prefix is None:
            run("cmake", "--install", BUILD, "--prefix", InstalledTest.root / "prefix")
            InstalledTest.prefix = InstalledTest.root / "prefix"
        return InstalledTest.prefix

    def pkg_config(self, prefix, *arguments, package="octet"):
        path = prefix / "lib" / "pkgconfig"
        return run("pkg-config", *arguments, package, env={"PKG_CONFIG_PATH": str(path)}).split()


class HeadersTest(InstalledTest):
    def test_nothing_else_is_installed(self):
        include = self.installed() / "include"
        self.assertEqual({str(path.relative_to(include)) for path in include.rglob("*.*")},
                         {f"octet/{name}.h" for name in PUBLIC_HEADERS})

    def test_each_header_compiles_alone(self):
        """Without the headers of CUDA or HIP, whatever the compiler is."""
        # All paths are relative to this folder, so that ccache finds what it has seen.
        folder = self.installed().parent
        os.environ.update(CCACHE_SLOPPINESS="pch_defines,time_macros", CCACHE_PCH_EXTSUM="1")
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror"]

        def precompile(compiler):
            header = folder / f"{pathlib.Path(compiler).name}.h.gch"
            run(*CCACHE, compiler, *flags, "-x", "c++-header", STATUSOR, "-o", header.name, cwd=folder)
            # For ccache, which would read a hundred megabytes for each compilation.
            header.with_suffix(".gch.sum").write_text(hashlib.sha256(header.read_bytes()).hexdigest())

        def compiled(each):
            """What a compiler says of a header, and the files that it has read for it."""
            compiler, name = each
            kind = pathlib.Path(compiler).name
            source = folder / f"{kind}_{name.replace('/', '_')}.cc"
            source.write_text(f"#include <octet/{name}.h>\n")
            files = source.with_suffix(".d")
            shared = ["-Winvalid-pch", "-include", f"{kind}.h"] if name in with_status else []
            said = run(*CCACHE, compiler, *flags, *shared, "-Iprefix/include", "-MD", "-MF",
                       files.name, "-c", source.name, "-o", source.with_suffix(".o").name, cwd=folder)
            return said, files.read_text().split()

        # c++ may be g++.
        found = [path for name in (CXX, "g++") if (path := shutil.which(name))]
        compilers = {os.path.realpath(path): path for path in found}.values()
        # Most headers include absl::StatusOr, which is three quarters of what there is to compile.
        # It is precompiled for those that do, each of which compiles as without that.
        with_status = {name for name in PUBLIC_HEADERS if STATUSOR.exists() and
                       "absl/status/statusor.h" in self.included(f"octet/{name}.h", set())}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(precompile, compilers if with_status else []))
            for said, files in pool.map(compiled,
                                        itertools.product(compilers, sorted(PUBLIC_HEADERS))):
                self.assertEqual(said, "")
                self.assertEqual([path for path in files if "cuda" in path or "/hip" in path], [])

    def included(self, header, seen):
        """The headers that an installed one includes, also through others that are installed."""
        path = self.installed() / "include" / header
        new = header not in seen
        seen.add(header)
        if new and path.exists():
            for name in re.findall(r'^#include ["<](.*)[">]', path.read_text(), re.MULTILINE):
                self.included(name, seen)
        return seen

    @unittest.skipUnless(NVCC, "needs nvcc")
    def test_headers_beside_cuda(self):
        if PLATFORM != "nvidia":
            self.skipTest("for NVIDIA GPUs only")
        source = self.folder / "beside.cu"
        source.write_text("#include <cuda_runtime.h>\n" +
                          "".join(f"#include <octet/{name}.h>\n"
                                  for name in sorted(PUBLIC_HEADERS)) +
                          "octet::GpuStream stream = cudaStream_t{};\n"
                          "octet::GpuEvent event = cudaEvent_t{};\n"
                          "#ifdef hipSuccess\n#error Octet leaks names of HIP\n#endif\n")
        prefix = self.installed()
        run(*CCACHE, NVCC, "-std=c++20", f"-I{prefix / 'include'}",
            *self.pkg_config(prefix, "--variable=kernel_flags"), "-c", source,
            "-o", self.folder / "beside.o", cwd=prefix.parent)


# What needs the source: it builds Octet, or is a part of building and testing it.
FOR_THE_SOURCE = re.compile(r"tools/(demo|test|fuzz|setup_rocm|install_packages)\.sh$|"
                            r"tools/(lint|compute_sanitizer)\.py$|\.\./")


class DocumentsTest(InstalledTest):
    def documents(self):
        folder = self.installed() / "share" / "doc" / "octet"
        pages = [(page, page.read_text(encoding="utf-8")) for page in folder.rglob("*.md")]
        self.assertGreater(len(pages), 10)
        return folder, pages

    def test_links_lead_to_installed_files(self):
        missing = []
        for page, text in self.documents()[1]:
            for target in re.findall(r"\]\(([^()\s#]+)(?:#[^()\s]*)?\)", text):
                if "://" not in target and not (page.parent / target).exists():
                    missing.append(f"{page.name}: {target}")
        self.assertEqual(missing, [])

    def test_scripts_that_are_called_are_installed(self):
        folder, pages = self.documents()
        called = {script for page, text in pages if page.name != "CONTRIBUTING.md"
                  for script in re.findall(r"(?:python3|bash|gdb -x) ([\w./]+\.(?:py|sh))\b", text)
                  if not FOR_THE_SOURCE.search(script)}
        self.assertIn("tests/tools/cli/check_dump.py", called)
        self.assertEqual({script for script in called if not (folder / script).exists()}, set())

    def test_layers_are_checked_without_the_source(self):
        if not can_run() or subprocess.run(["/usr/bin/python3", "-c", "import numpy"],
                                           check=False).returncode != 0:
            self.skipTest("needs a GPU and NumPy")
        prefix = self.installed()
        said = run("bash", prefix / "share" / "doc" / "octet" / "tools" / "layer_demo.sh", "mixtral",
                   env={"PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"})
        self.assertIn("layer_demo: passed: mixtral", said)


class ProjectTest(InstalledTest):
    """With what it takes to build a user's project."""

    def setUp(self):
        if PLATFORM == "amd":
            self.skipTest("needs ROCm's CMake package")
        super().setUp()

    def example(self, prefix):
        return prefix / "share" / "doc" / "octet" / "example"

    def configure(self, prefix, version, cxx=None, source=None):
        return run("cmake", "-S", source or self.example(prefix), "-B", self.folder / "build",
                   f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={cxx or CXX}",
                   f"-DWANTED_VERSION={version}")

    def check_program(self, program):
        self.assertTrue(os.access(program, os.X_OK))
        if can_run():
            self.assertEqual(run(program), "ok\n")

    def build_and_run(self, prefix):
        version = project_version()
        self.assertIn(f"Octet {version} for {PLATFORM}", self.configure(prefix, version))
        run("cmake", "--build", self.folder / "build")
        self.check_program(self.folder / "build" / "consumer")


class PackageTest(ProjectTest):
    def test_find_package(self):
        self.build_and_run(self.installed())

    @unittest.skipUnless(shutil.which("readelf"), "needs binutils")
    def test_stripped_installation(self):
        prefix = self.folder / "stripped"
        run("cmake", "--install", BUILD, "--strip", "--prefix", prefix)
        for file in ["bin/octet", "lib/liboctet_ep.a", "lib/liboctet_net.a"]:
            self.assertNotIn(".debug_info", run("readelf", "-SW", prefix / file), file)
        self.build_and_run(prefix)

    def test_other_minor_version_is_refused(self):
        major, minor, _ = map(int, project_version().split("."))
        prefix = self.installed()
        for other in {max(minor - 1, 0), minor + 1} - {minor}:
            with self.assertRaisesRegex(AssertionError, "considered but not accepted"):
                self.configure(prefix, f"{major}.{other}")

    def test_pkg_config(self):
        prefix = self.installed()
        self.assertEqual(self.pkg_config(prefix, "--modversion"), [project_version()])
        flags = ["-std=c++20", *self.pkg_config(prefix, "--cflags")]
        kernel_flags = self.pkg_config(prefix, "--variable=kernel_flags")
        kernels, consumer = self.folder / "negate.o", self.folder / "consumer"
        example = self.example(prefix)
        compiler, file = (NVCC, "negate.cu") if PLATFORM == "nvidia" else (CXX, "negate.hip")
        run(compiler, *flags, *kernel_flags, "-c", example / file, "-o", kernels)
        run(CXX, *flags, example / "consumer.cc", kernels, *self.pkg_config(prefix, "--libs"),
            "-o", consumer)
        self.check_program(consumer)

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_c(self):
        prefix, program = self.installed(), self.folder / "moe_step"
        run("cc", "-std=c99", *self.pkg_config(prefix, "--cflags", package="octet-c"),
            prefix / "share" / "doc" / "octet" / "example_c" / "moe_step.c",
            *self.pkg_config(prefix, "--libs", package="octet-c"),
            f"-Wl,-rpath,{prefix / 'lib'}", "-o", program)
        if can_run():
            self.assertIn("y is 2 x on 4 ranks", run(program))

    def test_python(self):
        """Found beside the library that is installed with it."""
        if not can_run():
            self.skipTest("needs a GPU")
        path = self.installed() / "lib" / "python3" / "dist-packages"
        said = run(sys.executable, "-B", "-c", "import octet\nwith octet.Node(2) as node:\n"
                   "  print(octet.__file__, node.run(lambda rank: rank.rank))", cwd=self.folder,
                   env={"PYTHONPATH": str(path), "OCTET_LIBRARY": ""})
        self.assertEqual(said, f"{path / 'octet' / '__init__.py'} [0, 1]\n")

    @unittest.skipUnless(shutil.which("g++"), "needs g++")
    def test_other_compiler_for_host_code(self):
        prefix = self.installed()
        (self.folder / "host_only.cc").write_text(HOST_ONLY)
        (self.folder / "CMakeLists.txt").write_text(HOST_ONLY_PROJECT)
        self.configure(prefix, "", cxx="g++", source=self.folder)
        run("cmake", "--build", self.folder / "build")
        self.check_program(self.folder / "build" / "host_only")

    @unittest.skipUnless(shutil.which("g++"), "needs g++")
    def test_other_compiler_without_cmake(self):
        """As docs/using.md says, line by line."""
        prefix = self.installed()
        block = (SOURCE / "docs/using.md").read_text().split("Without CMake:\n\n```\n")[1]
        block = block.split("\n```")[0].replace("/opt/octet", str(prefix))
        lines = [line for line in block.splitlines() if re.match(r"export |flags=|g\+\+ ", line)]
        self.assertEqual(len(lines), 3)
        (self.folder / "main.cc").write_text(HOST_ONLY)
        run("env", "-u", "PKG_CONFIG_PATH", "bash", "-euc", "\n".join(lines), cwd=self.folder)
        self.check_program(self.folder / "mine")

    def test_several_nodes_without_cmake(self):
        prefix = self.installed()
        source, program = self.folder / "several_nodes.cc", self.folder / "several_nodes"
        source.write_text(SEVERAL_NODES)
        run(CXX, "-std=c++20", *self.pkg_config(prefix, "--cflags", package="octet-net"), source,
            *self.pkg_config(prefix, "--libs", package="octet-net"), "-o", program)
        self.check_program(program)

    def test_several_nodes(self):
        prefix = self.installed()
        (self.folder / "several_nodes.cc").write_text(SEVERAL_NODES)
        (self.folder / "CMakeLists.txt").write_text(SEVERAL_NODES_PROJECT)
        self.configure(prefix, "", source=self.folder)
        run("cmake", "--build", self.folder / "build")
        self.check_program(self.folder / "build" / "several_nodes")

    @unittest.skipUnless(shutil.which("g++"), "needs g++")
    def test_other_compiler_for_kernels(self):
        if PLATFORM != "emulation":
            self.skipTest("nvcc compiles kernels whatever the host compiler is")
        with self.assertRaisesRegex(AssertionError, "(?s)octet_mark_kernels: kernels for emulated "
                                                    "GPUs need clang 18.*not GNU"):
            self.configure(self.installed(), project_version(), cxx="g++")

    def test_programs(self):
        prefix = self.installed()
        self.assertEqual({path.name for path in (prefix / "bin").iterdir()},
                         {"octet", "octet_bench", "octet-plot", "octet-compare"} |
                         ({"octet_mpi"} if has_mpi() else set()))
        for program in ["octet", *(["octet_mpi"] if has_mpi() else [])]:
            self.assertIn("usage: octet ", run(prefix / "bin" / program, "--help"))
        self.assertNotIn("libmpi", run("ldd", prefix / "bin" / "octet"))
        self.assertIn("usage: octet_bench ", run(prefix / "bin" / "octet_bench", "--help"))
        python = "/usr/bin/python3"
        for script, module in [("octet-plot", "matplotlib"), ("octet-compare", "scipy")]:
            if subprocess.run([python, "-c", f"import {module}"], capture_output=True,
                              check=False).returncode != 0:
                self.skipTest(f"{python} has no {module}")
            help_text = run(python, prefix / "bin" / script, "--help",
                            env={"PYTHONDONTWRITEBYTECODE": "1"})
            self.assertIn(f"usage: {script}", help_text)

    @unittest.skipUnless(shutil.which("mpirun"), "needs mpirun")
    def test_octet_on_several_nodes(self):
        """octet finds octet_mpi beside it, also through a link; or says that there is none."""
        link = self.folder / "linked"
        link.symlink_to(self.installed() / "bin" / "octet")
        command = ["mpirun", "-n", "2", link, "topo"]
        environment = {f"OMPI_{name}": value for name, value in [
            ("ALLOW_RUN_AS_ROOT", "1"), ("ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("MCA_rmaps_base_oversubscribe", "1"), ("MCA_hwloc_base_binding_policy", "none")]}
        if not has_mpi():
            with self.assertRaisesRegex(AssertionError, "has been built without MPI"):
                run(*command, env=environment)
        elif can_run():
            self.assertIn("# 2 nodes of up to ", run(*command, env=environment))

    def test_manual_pages(self):
        pages = self.installed() / "share" / "man" / "man1"
        octet = (pages / "octet.1").read_text()
        for word in [".SH NAME", ".SH octet run", ".SH octet topo", "\\-\\-timeout_ms="]:
            self.assertIn(word, octet)
        self.assertIn("\\-\\-benchmark_filter=", (pages / "octet_bench.1").read_text())
        if shutil.which("groff"):
            for page in pages.iterdir():
                self.assertEqual(run("groff", "-man", "-Tutf8", "-ww", "-z", page), "")

    def completions(self, prefix, *words):
        """The words that bash offers for the last one, when TAB is pressed after it."""
        script = """
            source "$1"; shift
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
            function=$(complete -p "$1"); function=${function#*-F }; function=${function%% *}
            "$function" "$1" "${@: -1}" "${@: -2:1}"
            printf '%s\\n' "${COMPREPLY[@]}"
        """
        file = prefix / "share" / "bash-completion" / "completions" / words[0]
        path = f"{prefix / 'bin'}:{os.environ['PATH']}"
        return set(run("bash", "-c", script, "bash", file, *words, cwd=prefix,
                       env={"PATH": path}).split())

    def test_completions(self):
        prefix = self.installed()
        self.assertEqual(self.completions(prefix, "octet", "t"), {"topo", "trace", "tune"})
        self.assertEqual(self.completions(prefix, "octet", "--v"), {"--version"})
        self.assertEqual(self.completions(prefix, "octet", "run", "--timeo"), {"--timeout_ms"})
        self.assertEqual(self.completions(prefix, "octet", "perf", "--check_s"), {"--check_steps"})
        self.assertEqual(self.completions(prefix, "octet", "run", "--check_s"), set())
        self.assertEqual(self.completions(prefix, "octet", "run", "--json", "=", "sh"), {"share"})
        self.assertEqual(self.completions(prefix, "octet", "run", "--json", "="),
                         {path.name for path in prefix.iterdir()})
        self.assertEqual(self.completions(prefix, "octet_bench", "--all_sh"), {"--all_shapes"})
        self.assertEqual(self.completions(prefix, "octet_bench", "--benchmark_fi"),
                         {"--benchmark_filter"})


class DebTest(ProjectTest):
    def unpacked_deb(self):
        run("cpack", "-G", "DEB", "-B", self.folder / "deb", cwd=BUILD)
        (deb,) = (self.folder / "deb").glob("*.deb")
        root = self.folder / "root"
        run("dpkg-deb", "-x", deb, root)
        return deb, root / "usr"

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "needs dpkg-dev")
    def test_deb_needs_no_package_more(self):
        """What cpack calls is in packages that tools/install_packages.sh installs."""
        build = (SOURCE / "tools/install_packages.sh").read_text().split("build)")[1].split(";;")[0]
        for program in ["file", "dpkg-shlibdeps", "pkg-config"]:
            owner = run("dpkg-query", "-S", shutil.which(program)).split(":")[0]
            self.assertIn(owner, re.findall(r"[\w.+-]+", build), program)

    @unittest.skipUnless(shutil.which("dpkg-shlibdeps"), "needs dpkg-dev")
    def test_deb(self):
        deb, usr = self.unpacked_deb()
        fields = dict(re.findall(r"^ (\S+): (.*)$", run("dpkg-deb", "-I", deb), re.MULTILINE))
        self.assertEqual(fields["Package"], f"octet-{PLATFORM}")
        self.assertEqual(fields["Version"], project_version())
        # All but the first by shlibdeps; libbenchmark is octet_bench's.
        for package in ["libabsl-dev", "libbenchmark1", "libc6"]:
            self.assertIn(package, fields["Depends"])
        for package in ["python3-matplotlib", "python3-scipy"]:
            self.assertIn(package, fields["Recommends"])
        names = re.findall(r" (\./\S+)$", run("dpkg-deb", "-c", deb), re.MULTILINE)
        for name in names:
            self.assertTrue("./usr/".startswith(name) or name.startswith("./usr/"), name)
        self.assertIn("./usr/share/doc/octet/LICENSE", names)
        for name in ["bin/octet", "bin/octet_bench", "bin/octet-plot", "bin/octet-compare",
                     "share/man/man1/octet.1", "share/man/man1/octet_bench.1",
                     "share/bash-completion/completions/octet", "lib/liboctet.so.0",
                     "lib/python3/dist-packages/octet/__init__.py", "include/octet/octet.h"]:
            self.assertTrue((usr / name).exists(), name)
        self.assertIn("run", run(usr / "bin" / "octet", "--help"))
        self.build_and_run(usr)
        self.check_removal(deb)

    def check_removal(self, deb):
        """What dpkg has installed it removes, in a root of its own and beside other files."""
        if os.geteuid() != 0:
            print("removal of the package is not tested: dpkg needs root")
            return
        root = self.folder / "dpkg_root"
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "usr/bin"]:
            (root / folder).mkdir(parents=True)
        for file in ["var/lib/dpkg/status", "var/lib/dpkg/available", "usr/bin/other"]:
            (root / file).touch()
        # The scripts of the package, which call ldconfig, are executed out here, where there is a shell.
        dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless",
                "--log=/dev/null"]
        run(*dpkg, "-i", deb)
        self.assertIn("usr/bin/octet", links(root))
        run(*dpkg, "-r", run("dpkg-deb", "-f", deb, "Package").strip())
        self.assertEqual({name for name in links(root) if not name.startswith("var/lib/dpkg/")},
                         {"usr/bin/other"})
        self.assertEqual([path.name for path in (root / "usr").iterdir()], ["bin"])


def main():
    global BUILD, CXX, PLATFORM
    if len(sys.argv) < 3:
        sys.exit("usage: package_test.py BUILD_DIR CXX [unittest arguments]")
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    CXX = sys.argv.pop(1)
    cache = (BUILD / "CMakeCache.txt").read_text()
    PLATFORM = re.search(r"^OCTET_PLATFORM:\w+=(\w+)$", cache, re.MULTILINE)[1]
    unittest.main()


if __name__ == "__main__":
    main()
