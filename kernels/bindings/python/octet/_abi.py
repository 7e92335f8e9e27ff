"""The declarations of <octet/octet.h>, made from it by make_abi.py: do not edit."""

# pylint: skip-file
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_uint32,
                    c_uint64, c_void_p, sizeof)


class Sized(Structure):
    """A struct whose first member is its size."""

    def __init__(self, **members):
        super().__init__(size=sizeof(self), **members)


OCTET_OK = 0
OCTET_CANCELLED = 1
OCTET_UNKNOWN = 2
OCTET_INVALID_ARGUMENT = 3
OCTET_DEADLINE_EXCEEDED = 4
OCTET_NOT_FOUND = 5
OCTET_ALREADY_EXISTS = 6
OCTET_PERMISSION_DENIED = 7
OCTET_RESOURCE_EXHAUSTED = 8
OCTET_FAILED_PRECONDITION = 9
OCTET_ABORTED = 10
OCTET_OUT_OF_RANGE = 11
OCTET_UNIMPLEMENTED = 12
OCTET_INTERNAL = 13
OCTET_UNAVAILABLE = 14
OCTET_DATA_LOSS = 15
OCTET_FAILURE_ERROR = 0
OCTET_FAILURE_WAIT = 1
OCTET_FAILURE_INPUT = 2
OCTET_BFLOAT16 = 0
OCTET_FLOAT16 = 1
OCTET_STRATEGY_AUTO = 0
OCTET_DIRECT = 1
OCTET_HIGH_THROUGHPUT = 2
OCTET_LOW_LATENCY = 3
OCTET_ORDER_AUTO = 0
OCTET_ORDER_FLAT = 1
OCTET_ORDER_PER_RANK = 2
OCTET_ORDER_PER_NODE = 3
OCTET_METHOD_AUTO = 0
OCTET_PUSH = 1
OCTET_PULL = 2
OCTET_DISPATCH_SAME = 0
OCTET_DISPATCH_FP8 = 1
OCTET_DISPATCH_BYTES = 2
OCTET_DISPATCH_QUANTIZED_FP8 = 3
OCTET_PACKED_EXPERTS = 0
OCTET_DEDUPLICATED = 1
OCTET_EXPERT_MAJOR = 2
OCTET_RANK_MAJOR = 3
OCTET_FILL = 0
OCTET_INDEX = 1
OCTET_SCALE_FLOAT32 = 0
OCTET_SCALE_POWER_OF_TWO = 1
OCTET_SCALE_UE8M0 = 2
OCTET_POLICY_ABORT = 0
OCTET_POLICY_MASK = 1
OCTET_NO_ACTIVATION = 0
OCTET_SWIGLU = 1
OCTET_OUTPUT_DTYPE = 0
OCTET_OUTPUT_FLOAT32 = 1
OCTET_FORMAT_SAME = 0
OCTET_FORMAT_FP8 = 1
OCTET_FORMAT_MXFP4 = 2
OCTET_FUSION_AUTO = 0
OCTET_FUSION_NONE = 1
OCTET_FUSION_TILES = 2
OCTET_FUSION_SERIAL = 3
OCTET_FUSION_EPILOGUE = 4
OCTET_WEIGHTS_IN_COMBINE = 0
OCTET_WEIGHTS_IN_FIRST_PRODUCT = 1
OCTET_SOFTMAX = 0
OCTET_SIGMOID = 1
OCTET_SPARSEMIXER = 2
OCTET_GROUP_MAXIMUM = 0
OCTET_GROUP_SUM_OF_TWO_BEST = 1
OCTET_PATH_AUTO = 0
OCTET_PATH_LAUNCHES = 1
OCTET_PATH_DECODE = 2
OCTET_SHARED_AUTO = 0
OCTET_SHARED_AFTER = 1
OCTET_SHARED_BESIDE = 2
OCTET_TENSOR_FLOAT32 = 0
OCTET_TENSOR_BFLOAT16 = 1
OCTET_TENSOR_FLOAT16 = 2
OCTET_TENSOR_FLOAT8_E4M3 = 3
OCTET_TENSOR_FLOAT4_E2M1 = 4
OCTET_TENSOR_FLOAT8_E8M0 = 5
OCTET_TENSOR_INT4 = 6
OCTET_TRANSPORT_AUTO = 0
OCTET_TRANSPORT_MPI = 1
OCTET_TRANSPORT_NCCL = 2
OCTET_ROUTER = 0
OCTET_ROUTER_BIAS = 1
OCTET_EXPERT_GATE = 2
OCTET_EXPERT_UP = 3
OCTET_EXPERT_DOWN = 4
OCTET_SHARED_EXPERT_GATE = 5
OCTET_SHARED_EXPERT_UP = 6
OCTET_SHARED_EXPERT_DOWN = 7
OCTET_SHARED_GATE = 8
OCTET_LOGIT_BIAS = 9
OCTET_EXPERT_GATE_BIAS = 10
OCTET_EXPERT_UP_BIAS = 11
OCTET_EXPERT_DOWN_BIAS = 12


class octet_failure(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("kind", c_int32),
        ("rank", c_int32),
        ("peer", c_int32),
        ("index", c_uint32),
        ("expected", c_uint64),
        ("seen", c_uint64),
        ("waited_ns", c_int64),
        ("phase", c_char_p),
        ("flag", c_char_p),
        ("object", c_char_p),
    ]


octet_rank_function = CFUNCTYPE(c_int32, c_void_p, c_void_p)


octet_function = CFUNCTYPE(c_int32, c_void_p)


octet_failure_function = CFUNCTYPE(None, c_int32, c_char_p, c_void_p)


class octet_node_options(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("num_ranks", c_int32),
        ("no_pinned_threads", c_int32),
        ("timeout_ns", c_int64),
        ("on_failure", octet_failure_function),
        ("on_failure_user", c_void_p),
        ("quiet", c_int32),
    ]


class octet_world_options(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("node", POINTER(octet_node_options)),
        ("arrival_timeout_ns", c_int64),
        ("transport", c_int32),
        ("prepared_code", c_int32),
        ("prepared_message", c_char_p),
    ]


class octet_domain_info(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("num_ranks", c_int32),
        ("num_nodes", c_int32),
        ("node_index", c_int32),
        ("local_ranks", c_int32),
        ("timeout_ns", c_int64),
        ("transport", c_int32),
    ]


class octet_rank_info(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("rank", c_int32),
        ("local_ranks", c_int32),
        ("device", c_int32),
        ("reserved", c_int32),
        ("stream", c_void_p),
    ]


class octet_ep_config(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("num_experts", c_int32),
        ("topk", c_int32),
        ("hidden", c_int32),
        ("max_tokens_per_rank", c_int32),
        ("dtype", c_int32),
        ("strategy", c_int32),
        ("combine_order", c_int32),
        ("combine_method", c_int32),
        ("dispatch_format", c_int32),
        ("output", c_int32),
        ("scale_format", c_int32),
        ("scale_group", c_int32),
        ("max_blocks", c_int32),
        ("failure_policy", c_int32),
        ("mask_timeout_ns", c_int64),
        ("statistics", c_int32),
        ("duplicates", c_int32),
        ("expert_alignment", c_int32),
        ("row_bytes", c_int32),
        ("kept_layouts", c_int32),
        ("host_totals", c_int32),
        ("placement", c_void_p),
        ("placement_slots", c_int32),
        ("capacity_rows", c_int32),
        ("count_loads", c_int32),
        ("load_window", c_int32),
    ]


class octet_ep_options(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("name", c_char_p),
        ("heap", c_void_p),
        ("no_measured_tuning", c_int32),
        ("rail_chunk_tokens", c_int32),
    ]


class octet_ep_info(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("local_experts", c_int32),
        ("max_rows", c_int32),
        ("expert_out_rows", c_int32),
        ("scale_words", c_int32),
        ("dispatch_row_bytes", c_uint64),
        ("received_row_bytes", c_uint64),
    ]


class octet_dispatch_handle(Structure):
    _fields_ = [
        ("words", c_uint64 * 8),
    ]


class octet_dispatch_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("x", c_void_p),
        ("topk_idx", c_void_p),
        ("topk_weights", c_void_p),
        ("num_tokens", c_int64),
        ("x_scales", c_void_p),
        ("scatter_idx", c_void_p),
        ("cached", POINTER(octet_dispatch_handle)),
    ]


class octet_combine_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("expert_out", c_void_p),
        ("y", c_void_p),
        ("bias", c_void_p),
        ("unweighted", c_int32),
    ]


class octet_received(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("x", c_void_p),
        ("scales", c_void_p),
        ("expert_counts", c_void_p),
        ("expert_offsets", c_void_p),
        ("sources", c_void_p),
        ("row_bytes", c_uint64),
        ("max_rows", c_int64),
        ("handle", octet_dispatch_handle),
        ("source_offsets", c_void_p),
        ("row_weights", c_void_p),
        ("row_index", c_void_p),
        ("recv_topk_idx", c_void_p),
        ("recv_topk_weights", c_void_p),
        ("num_rows", c_int64),
        ("num_tokens", c_int64),
        ("host_expert_counts", c_void_p),
        ("ranges", c_void_p),
        ("split_counts", c_void_p),
        ("left_out", c_void_p),
    ]


class octet_move_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("num_experts", c_int32),
        ("num_ranks", c_int32),
        ("slots_per_rank", c_int32),
        ("current", c_void_p),
        ("wanted", c_void_p),
    ]


class octet_delivery(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("x", c_void_p),
        ("expert_counts", c_void_p),
        ("expert_offsets", c_void_p),
        ("sources", c_void_p),
        ("row_weights", c_void_p),
        ("ticket", c_void_p),
        ("zero_rest", c_int32),
        ("line", c_int32),
    ]


class octet_delivered_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("ticket", c_void_p),
        ("topk_idx", c_void_p),
        ("topk_weights", c_void_p),
        ("num_tokens", c_int64),
        ("expert_out", c_void_p),
        ("y", c_void_p),
        ("unweighted", c_int32),
        ("line", c_int32),
    ]


class octet_gemm_config(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("experts", c_int32),
        ("n", c_int32),
        ("k", c_int32),
        ("dtype", c_int32),
        ("max_rows", c_int64),
        ("output", c_int32),
        ("format", c_int32),
        ("scale_format", c_int32),
        ("activation", c_int32),
        ("expected_rows", c_int64),
        ("blocks", c_int32),
        ("no_measured_tuning", c_int32),
        ("fp8_rows", c_int32),
    ]


class octet_gemm_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("a", c_void_p),
        ("b", c_void_p),
        ("a_scales", c_void_p),
        ("b_scales", c_void_p),
        ("expert_offsets", c_void_p),
        ("expert_counts", c_void_p),
        ("bias", c_void_p),
        ("row_scale", c_void_p),
        ("out", c_void_p),
        ("rows", c_int64),
    ]


class octet_experts_config(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("ep", POINTER(octet_ep_config)),
        ("intermediate", c_int32),
        ("no_activation", c_int32),
        ("second_format", c_int32),
        ("weights_in", c_int32),
        ("dispatch_gemm", c_int32),
        ("gemm_combine", c_int32),
        ("first_format", c_int32),
        ("second_fp8_rows", c_int32),
    ]


class octet_dispatch_gemm_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("dispatch", POINTER(octet_dispatch_args)),
        ("b", c_void_p),
        ("b_scales", c_void_p),
        ("bias", c_void_p),
        ("out", c_void_p),
    ]


class octet_gemm_combine_args(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("a", c_void_p),
        ("b", c_void_p),
        ("b_scales", c_void_p),
        ("bias", c_void_p),
        ("y_bias", c_void_p),
        ("y", c_void_p),
    ]


class octet_layer_config(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("num_experts", c_int32),
        ("topk", c_int32),
        ("hidden", c_int32),
        ("intermediate", c_int32),
        ("shared_intermediate", c_int32),
        ("shared_gate", c_int32),
        ("max_tokens_per_rank", c_int32),
        ("dtype", c_int32),
        ("weights", c_int32),
        ("path", c_int32),
        ("strategy", c_int32),
        ("fusion", c_int32),
        ("max_blocks", c_int32),
        ("link_blocks", c_int32),
        ("shared_experts", c_int32),
        ("router_scores", c_int32),
        ("router_groups", c_int32),
        ("router_top_groups", c_int32),
        ("router_group_score", c_int32),
        ("router_normalize", c_int32),
        ("router_normalize_epsilon", c_float),
        ("router_scaling", c_float),
        ("capacity_rows", c_int32),
        ("logit_bias", c_int32),
        ("expert_biases", c_int32),
        ("swiglu_alpha", c_float),
        ("swiglu_limit", c_float),
        ("swiglu_up_offset", c_float),
        ("placement", c_void_p),
        ("placement_slots", c_int32),
        ("count_loads", c_int32),
        ("load_window", c_int32),
        ("weighs_input", c_int32),
        ("fp8_rows", c_int32),
        ("router_jitter", c_float),
    ]


class octet_tensor(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("type", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("scale_type", c_int32),
        ("data", c_void_p),
        ("scales", c_void_p),
        ("column_pitch", c_uint64),
        ("row_step", c_int32),
        ("scale_rows", c_int32),
        ("scale_columns", c_int32),
    ]


class octet_mlp_weights(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("gate", POINTER(octet_tensor)),
        ("up", POINTER(octet_tensor)),
        ("down", POINTER(octet_tensor)),
        ("gate_bias", POINTER(octet_tensor)),
        ("up_bias", POINTER(octet_tensor)),
        ("down_bias", POINTER(octet_tensor)),
    ]


class octet_layer_weights(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("router", POINTER(octet_tensor)),
        ("router_bias", POINTER(octet_tensor)),
        ("experts", POINTER(octet_mlp_weights)),
        ("num_experts", c_int64),
        ("shared", POINTER(octet_mlp_weights)),
        ("shared_gate", POINTER(octet_tensor)),
        ("logit_bias", POINTER(octet_tensor)),
    ]


class octet_layer_options(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("name", c_char_p),
        ("share", c_void_p),
        ("rail_chunk_tokens", c_int32),
    ]


class octet_routed_tokens(Sized):
    _fields_ = [
        ("size", c_uint64),
        ("logits", c_void_p),
        ("stride", c_int64),
        ("topk_idx", c_void_p),
        ("topk_weights", c_void_p),
    ]


FUNCTIONS = {
    "octet_last_error": (c_char_p, []),
    "octet_last_failure": (c_int32, [POINTER(octet_failure)]),
    "octet_fail": (c_int32, [c_int32, c_char_p]),
    "octet_code_name": (c_char_p, [c_int32]),
    "octet_version": (c_char_p, []),
    "octet_platform": (c_char_p, []),
    "octet_value_of_name": (c_int32, [c_char_p, c_char_p, POINTER(c_int32)]),
    "octet_name_of_value": (c_int32, [c_char_p, c_int32, POINTER(c_char_p)]),
    "octet_node_create": (c_int32, [POINTER(octet_node_options), POINTER(c_void_p)]),
    "octet_world_create": (c_int32, [POINTER(octet_world_options), POINTER(c_void_p)]),
    "octet_domain_destroy": (c_int32, [c_void_p]),
    "octet_domain_get_info": (c_int32, [c_void_p, POINTER(octet_domain_info)]),
    "octet_domain_run": (c_int32, [c_void_p, octet_rank_function, c_void_p]),
    "octet_node_adopt": (c_int32, [c_void_p, c_int32, POINTER(octet_node_options),
    POINTER(c_void_p)]),
    "octet_domain_call": (c_int32, [c_void_p, c_int32, c_void_p, octet_rank_function, c_void_p]),
    "octet_domain_settle": (c_int32, [c_void_p]),
    "octet_rank_get_info": (c_int32, [c_void_p, POINTER(octet_rank_info)]),
    "octet_rank_barrier": (c_int32, [c_void_p, c_char_p]),
    "octet_rank_synchronize": (c_int32, [c_void_p]),
    "octet_rank_launch": (c_int32, [c_void_p, octet_function, c_void_p, c_char_p]),
    "octet_rank_copy": (c_int32, [c_void_p, c_void_p, c_void_p, c_uint64]),
    "octet_memory_create": (c_int32, [c_void_p, c_int32, c_uint64, POINTER(c_void_p)]),
    "octet_memory_destroy": (None, [c_void_p]),
    "octet_memory_data": (c_void_p, [c_void_p]),
    "octet_copy": (c_int32, [c_void_p, c_int32, c_void_p, c_void_p, c_uint64]),
    "octet_heap_create": (c_int32, [c_void_p, c_uint64, c_uint64, POINTER(c_void_p)]),
    "octet_heap_destroy": (None, [c_void_p]),
    "octet_graph_capture": (c_int32, [c_void_p, octet_function, c_void_p, POINTER(c_void_p)]),
    "octet_graph_launch": (c_int32, [c_void_p, c_void_p]),
    "octet_graph_destroy": (None, [c_void_p]),
    "octet_ep_create": (c_int32, [c_void_p, POINTER(octet_ep_config), POINTER(octet_ep_options),
    POINTER(c_void_p)]),
    "octet_ep_destroy": (None, [c_void_p]),
    "octet_ep_heap_bytes": (c_int32, [POINTER(octet_ep_config), c_int32, POINTER(c_uint64),
    POINTER(c_uint64)]),
    "octet_ep_get_config": (c_int32, [c_void_p, POINTER(octet_ep_config)]),
    "octet_ep_get_info": (c_int32, [c_void_p, POINTER(octet_ep_info)]),
    "octet_ep_dispatch": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_args),
    POINTER(octet_received)]),
    "octet_ep_combine": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_handle),
    POINTER(octet_combine_args)]),
    "octet_ep_dispatch_send": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_args),
    POINTER(octet_dispatch_handle)]),
    "octet_ep_dispatch_receive": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_handle),
    POINTER(octet_received)]),
    "octet_ep_combine_send": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_handle),
    POINTER(octet_combine_args)]),
    "octet_ep_combine_receive": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_handle),
    POINTER(octet_combine_args)]),
    "octet_ep_masked_ranks": (c_int32, [c_void_p, c_void_p, POINTER(c_uint32)]),
    "octet_ep_mask": (c_int32, [c_void_p, c_void_p, c_uint32]),
    "octet_ep_unmask": (c_int32, [c_void_p, c_void_p, c_uint32]),
    "octet_ep_statistics": (c_int32, [c_void_p, c_void_p, POINTER(c_int64), POINTER(c_int64),
    POINTER(c_int64)]),
    "octet_ep_reset_statistics": (c_int32, [c_void_p, c_void_p]),
    "octet_ep_loads": (c_int32, [c_void_p, POINTER(c_int64), POINTER(c_int64)]),
    "octet_plan_placement": (c_int32, [c_void_p, c_int32, c_int32, c_int32, POINTER(c_int32)]),
    "octet_plan_moves": (c_int32, [POINTER(octet_move_args), c_int32, POINTER(c_int32),
    POINTER(c_int32)]),
    "octet_functional_create": (c_int32, [c_void_p, POINTER(octet_ep_config),
    POINTER(octet_ep_options), POINTER(c_void_p)]),
    "octet_functional_destroy": (None, [c_void_p]),
    "octet_functional_ep": (c_void_p, [c_void_p]),
    "octet_functional_rows": (c_int32, [c_void_p, c_int32, POINTER(c_void_p)]),
    "octet_functional_dispatch": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_args),
    POINTER(octet_delivery)]),
    "octet_functional_combine": (c_int32, [c_void_p, c_void_p, POINTER(octet_delivered_args)]),
    "octet_functional_check": (c_int32, [c_void_p]),
    "octet_gemm_create": (c_int32, [c_void_p, POINTER(octet_gemm_config), POINTER(c_void_p)]),
    "octet_gemm_destroy": (None, [c_void_p]),
    "octet_gemm_run": (c_int32, [c_void_p, c_void_p, POINTER(octet_gemm_args)]),
    "octet_experts_create": (c_int32, [c_void_p, POINTER(octet_experts_config),
    POINTER(octet_ep_options), POINTER(c_void_p)]),
    "octet_experts_destroy": (None, [c_void_p]),
    "octet_experts_get_info": (c_int32, [c_void_p, POINTER(octet_ep_info)]),
    "octet_experts_dispatch_gemm": (c_int32, [c_void_p, c_void_p, POINTER(octet_dispatch_gemm_args),
    POINTER(octet_received)]),
    "octet_experts_gemm_combine": (c_int32, [c_void_p, c_void_p, POINTER(octet_received),
    POINTER(octet_gemm_combine_args)]),
    "octet_layer_create": (c_int32, [c_void_p, POINTER(octet_layer_config),
    POINTER(octet_layer_options), POINTER(c_void_p)]),
    "octet_layer_destroy": (None, [c_void_p]),
    "octet_layer_get_config": (c_int32, [c_void_p, POINTER(octet_layer_config)]),
    "octet_layer_load": (c_int32, [c_void_p, POINTER(octet_layer_weights)]),
    "octet_layer_load_model": (c_int32, [c_void_p, c_void_p, c_int32]),
    "octet_layer_forward": (c_int32, [c_void_p, c_void_p, c_void_p, c_int64, c_void_p]),
    "octet_layer_forward_counted": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "octet_layer_get_routed": (c_int32, [c_void_p, c_void_p, POINTER(octet_routed_tokens)]),
    "octet_layer_loads": (c_int32, [c_void_p, POINTER(c_int64), POINTER(c_int64)]),
    "octet_layer_prepare": (c_int32, [c_void_p, c_void_p, c_void_p, c_int32, c_int32]),
    "octet_layer_apply": (c_int32, [c_void_p, c_void_p]),
    "octet_layer_get_placement": (c_int32, [c_void_p, c_void_p, POINTER(c_int32)]),
    "octet_model_open": (c_int32, [c_char_p, POINTER(c_void_p)]),
    "octet_model_destroy": (None, [c_void_p]),
    "octet_model_family": (c_char_p, [c_void_p]),
    "octet_model_num_layers": (c_int32, [c_void_p, POINTER(c_int32)]),
    "octet_model_layer_config": (c_int32, [c_void_p, c_int32, POINTER(octet_layer_config)]),
    "octet_model_tensor": (c_int32, [c_void_p, c_int32, c_int32, c_int32, POINTER(octet_tensor)]),
}
