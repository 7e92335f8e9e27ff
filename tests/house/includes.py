"""The include graph and the arrows between the rooms of the house.

    tests -> bench -> tools -> kernels/bindings -> kernels -> runtime -> runtime/platform/<one>

An arrow points to what a room may include; it may include everything further along, too. Inside:

    tools     commands -> report -> measure -> check, step, contenders -> workload -> support
    kernels   as KERNELS_ROOMS says; no strategy includes another
    runtime   runtime/* -> runtime/device -> runtime/platform

Headers that every platform has are found through the include path and have no folder in their name.
"""

import collections
import re

from tree import code, numbered

PLATFORMS = ("amd", "emulation", "nvidia")
PLATFORM = "runtime/platform/"
SHARED = PLATFORM + "include/"  # what all platforms have in common, of public headers
GPU = PLATFORM + "gpu/"  # headers that are the same for all real GPUs
BINDINGS = "kernels/bindings/"
C_INTERFACE = BINDINGS + "c/include/octet/"  # for programs in C
PUBLIC = ("runtime/include/octet/", "kernels/include/octet/", C_INTERFACE, SHARED,
          *(f"{PLATFORM}{platform}/include/octet/" for platform in PLATFORMS))
EXAMPLE = "tests/package/example/"  # a user's project, whose includes begin there
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:<([^>]+)>|"([^"]+)")')

# From above to below. A room may include itself and those further down the list.
FLOORS = ("tests", "docs", "bench", "tools", "kernels/bindings", "kernels", "runtime", "runtime/device", "runtime/platform")
TOOLS_ROOMS = {
    "commands": 6, "report": 5, "measure": 4, "check": 3, "step": 3, "contenders": 3,
    "workload": 2, "support": 1,
}
# The rooms of kernels/, and which others they may build upon; all may know include/.
STRATEGIES = {"direct", "low_latency", "high_throughput"}
KERNELS_ROOMS = {
    "types": set(),
    "ep/device": {"types"},
    "ep": {"types", "ep/device", "tuning"},
    **dict.fromkeys(STRATEGIES, {"types", "ep", "ep/device"}),
    "nodes": {"types", "ep", "ep/device"},
    "placement": {"types", "ep", "ep/device"},
    "gemm": {"types", "ep", "tuning"},
    "tuning": {"types", "ep"},
    "fused": {"types", "ep", "ep/device", "tuning", "gemm", "nodes", *STRATEGIES},
    "router": {"types"},
    "decode": {"types", "ep", "ep/device", "router", "placement"},
    "layer": {"types", "ep", "ep/device", "tuning", "gemm", "nodes", "placement", "fused", "router", "decode"},
    "model": set(),
    "oracle": {"types", "ep", "layer", "router"},
    "bindings": set(),
}
# The libraries of kernels/ and the rooms that they are made of; each may know those before it.
LIBRARIES = {
    "types": {"types"},
    "ep": {"ep", "ep/device", "nodes", "placement", "tuning", *STRATEGIES},
    "gemm": {"gemm"},
    "layer": {"fused", "router", "decode", "layer"},
    "model": {"model"},
    "oracle": {"oracle"},
}
# What does not keep to that, by file.
KERNELS_EXCEPTIONS = {
    ("kernels/ep/strategy_registry.cc", room) for room in STRATEGIES
} | {
    # Calls within a node or over several.
    ("kernels/ep/expert_parallel.cc", "nodes"),
    ("kernels/ep/expert_parallel.cc", "placement"),
}
# Vendors' and other projects' headers, and the only places that know them. HIP's are everybody's.
FOREIGN = {
    re.compile(r"^(cuda|cub|cooperative_groups|thrust|hipcub|rocm|rocprim|cudaTypedefs)"): PLATFORM,
    re.compile(r"^(sanitizer/)"): PLATFORM,
    re.compile(r"^(rccl/|nccl)"): (PLATFORM, "runtime/net/rails/nccl_library.h", "tests/support/"),
    re.compile(r"^(mpi\.h)"): ("runtime/net/", "tests/runtime/net/"),
    re.compile(r"^(gtest|gmock)/"): "tests/",
    re.compile(r"^benchmark/"): "bench/",
    re.compile(r"^CLI/"): "tools/commands/command_line.cc",
    re.compile(r"^nlohmann/"): ("kernels/model/", "kernels/tuning/tuning_json.cc", "tools/", "tests/"),
    re.compile(r"^sys/mman"): (PLATFORM, "kernels/model/", "tests/"),
}


class Include(collections.namedtuple("Include", "path line name quoted")):
    def __str__(self):
        return f"{self.path}:{self.line}: includes {self.name}"


def includes_of(tree, path):
    found = []
    for line, text in numbered(tree[path]):
        match = INCLUDE.match(text)
        if match:
            found.append(Include(path, line, match[1] or match[2], match[2] is not None))
    return found


def resolve(tree, include):
    """The files of the tree that an include may mean: one, one for each platform, or none."""
    name = include.name
    if name in tree:
        return [name]
    if include.path.startswith(PLATFORM) and include.path.count("/") > 2:
        own = "/".join(include.path.split("/")[:3]) + "/"
        return [path for path in (own + name, f"{own}include/{name}", f"{SHARED}{name}")
                if path in tree]
    found = [PLATFORM + platform + "/" + name for platform in PLATFORMS] + [GPU + name]
    found += [folder + "include/" + name for folder in
              ("runtime/", "kernels/", BINDINGS + "c/", PLATFORM,
               *(PLATFORM + platform + "/" for platform in PLATFORMS))]
    found = [path for path in found if path in tree]
    if not found and include.path.startswith(EXAMPLE) and EXAMPLE + name in tree:
        return [EXAMPLE + name]
    return found


def edges(tree):
    """(Include, path of what is included) for all includes of the tree's own files."""
    return [(include, target) for path in code(tree) for include in includes_of(tree, path)
            for target in resolve(tree, include)]


# Public headers that kernels include, too: as low as runtime/device.
DEVICE_HEADERS = ("runtime/include/octet/peers.h",)


def _floor(path):
    if path in DEVICE_HEADERS:
        return "runtime/device"
    if path.startswith(BINDINGS):
        return BINDINGS.rstrip("/")
    if path.startswith("runtime/"):
        inner = "/".join(path.split("/")[:2])
        return inner if inner in FLOORS else "runtime"
    return path.split("/")[0]


def _room(path, floor):
    """The folder of `floor` that the file lies in; empty for a file of the floor itself."""
    parts = path.split("/")
    return parts[1] if parts[0] == floor and len(parts) > 2 else ""


def _kernels_room(path):
    return "ep/device" if path.startswith("kernels/ep/device/") else _room(path, "kernels")


def unknown_includes(tree):
    """A quoted include is a file of ours or Abseil's, and its name begins at the root."""
    return [f"{include}, which is none of ours" for path in code(tree)
            for include in includes_of(tree, path)
            if include.quoted and not include.name.startswith("absl/")
            and not resolve(tree, include)]


def floors(tree):
    """Between floors, arrows only point down."""
    return [f"{include}: {_floor(include.path)} may not know {_floor(target)}"
            for include, target in edges(tree)
            if FLOORS.index(_floor(include.path)) > FLOORS.index(_floor(target))]


def platforms(tree):
    """A platform knows itself only, and what all share; only tests know one platform in particular.
    """
    found = []
    contract = platform_headers(tree)
    for include, target in edges(tree):
        if not target.startswith(PLATFORM) or target.startswith(SHARED) or target.count("/") < 3:
            continue
        own, name = target[len(PLATFORM):].split("/", 1)
        if include.path.startswith(PLATFORM):
            if include.path.split("/")[2] != own and not include.path.startswith(SHARED):
                found.append(f"{include} of another platform")
        elif "/" in include.name and include.name.startswith(PLATFORM):
            found.append(f"{include} by its folder; the include path picks the platform")
        elif (not include.path.startswith("tests/") and not name.startswith(("hip/", "include/"))
              and "rccl/" not in name
              and not all(name in headers for headers in contract.values())):
            found.append(f"{include}, which not every platform has")
    return found


def platform_headers(tree):
    """By platform, the headers that the include path finds, name -> path: those at the top of its
    folder and, of real GPUs, those that all of them share.
    """
    found = {platform: {} for platform in PLATFORMS}
    for path in code(tree, PLATFORM, kinds=(".h",)):
        parts = path.split("/")
        if len(parts) != 4:
            continue
        for platform, headers in found.items():
            if parts[2] == platform or (path.startswith(GPU) and platform != "emulation"):
                headers[parts[3]] = path
    return found


def tools_rooms(tree):
    """The rooms of tools/ stand in an order."""
    found = []
    for include, target in edges(tree):
        room, other = _room(include.path, "tools"), _room(target, "tools")
        if not room or not target.startswith("tools/") or room == other:
            continue
        if room not in TOOLS_ROOMS or other not in TOOLS_ROOMS:
            found.append(f"{include}: give each room of tools/ a place in TOOLS_ROOMS")
        elif TOOLS_ROOMS[room] <= TOOLS_ROOMS[other]:
            found.append(f"{include}: tools/{room} may not know tools/{other}")
    return found


def kernels_rooms(tree):
    """The rooms of kernels/ know those of KERNELS_ROOMS only; strategies do not know each other."""
    found, needed = [], set()
    for include, target in edges(tree):
        if not (include.path.startswith("kernels/") and target.startswith("kernels/")):
            continue
        room, other = _kernels_room(include.path), _kernels_room(target)
        if room == other or other == "include":
            continue
        if room not in KERNELS_ROOMS:
            found.append(f"{include}: give each room of kernels/ a place in KERNELS_ROOMS")
        elif (include.path, other) in KERNELS_EXCEPTIONS:
            needed.add((include.path, other))
        elif other not in KERNELS_ROOMS[room]:
            found.append(f"{include}: kernels/{room} may not know kernels/{other}")
    return found + [f"{path} no longer knows kernels/{other}: take it out of KERNELS_EXCEPTIONS"
                    for path, other in sorted(KERNELS_EXCEPTIONS - needed)]


def kernels_libraries(tree):
    """Libraries of kernels/ are made of the folders in LIBRARIES, and know those before them only.
    """
    library_of = {room: name for name, rooms in LIBRARIES.items() for room in rooms}
    order = list(LIBRARIES)
    found = []
    for include, target in edges(tree):
        own, other = (library_of.get(_kernels_room(path)) for path in (include.path, target))
        if (include.path.startswith("kernels/") and target.startswith("kernels/") and own and other
                and order.index(own) < order.index(other)):
            found.append(f"{include}: octet_{own} may not know octet_{other}")
    path = "kernels/CMakeLists.txt"
    for name, sources in re.findall(r"octet_add_library\(octet_(\w+)\s+SOURCES([^)]*?)(?:HEADERS|DEPS)",
                                    tree[path]):
        for source in re.findall(r"^ +((?:\w+/)+\w+\.(?:cc|hip))$", sources, re.MULTILINE):
            if library_of.get(_kernels_room("kernels/" + source)) != name:
                found.append(f"{path}: {source} is none of octet_{name}")
    return found


def cycles(tree):
    """No header includes itself by way of others."""
    graph = collections.defaultdict(set)
    for include, target in edges(tree):
        graph[include.path].add(target)
    found, state = [], {}

    def visit(path, way):
        state[path] = "open"
        for target in sorted(graph[path]):
            if state.get(target) == "open":
                found.append(" -> ".join([*way[way.index(target):], target]))
            elif target not in state:
                visit(target, [*way, target])
        state[path] = "done"

    for path in sorted(graph):
        if path not in state:
            visit(path, [path])
    return found


def no_absl_in_device_code(tree):
    """What is compiled for GPUs knows no Abseil, neither itself nor by what it includes."""
    graph = collections.defaultdict(list)
    direct = {}
    for path in code(tree):
        for include in includes_of(tree, path):
            if include.name.startswith("absl/"):
                direct.setdefault(path, include)
            graph[path] += resolve(tree, include)
    device = code(tree, kinds=(".hip",)) + code(tree, "runtime/device/", "kernels/ep/device/")
    found = []
    for start in device:
        came_from, queue = {start: None}, [start]
        while queue:
            path = queue.pop()
            if path in direct:
                way = [path]
                while came_from[way[0]] is not None:
                    way.insert(0, came_from[way[0]])
                found.append(" -> ".join([*way, direct[path].name]))
                break
            for target in graph[path]:
                if target not in came_from:
                    came_from[target] = path
                    queue.append(target)
    return found


def public_headers(tree):
    """What users include includes the standard library, Abseil and other public headers only."""
    standard = re.compile(r"^([a-z_0-9]+|stdint\.h)$")
    return [f"{include}; a public header may not" for path in code(tree, *PUBLIC)
            for include in includes_of(tree, path)
            if not (include.name.startswith(("absl/", "octet/"))
                    or (not include.quoted and standard.match(include.name)))]


def foreign_headers(tree):
    """A vendor's or another project's header is known in the one place that is for it."""
    return [f"{include}, which belongs into {place if isinstance(place, str) else ', '.join(place)}"
            for path in code(tree) for include in includes_of(tree, path)
            for pattern, place in FOREIGN.items()
            if pattern.match(include.name) and not path.startswith(place)]
