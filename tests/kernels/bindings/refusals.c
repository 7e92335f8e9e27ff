// The C interface refuses what it cannot use, each with its sentence, and is as it was afterwards.
#include <octet/octet.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void Expect(int line, int32_t code, int32_t expected, const char* words) {
  if (code == expected && (code == OCTET_OK || strstr(octet_last_error(), words) != NULL)) return;
  ++failures;
  fprintf(stderr, "line %d: %s, not %s: '%s' without '%s'\n", line, octet_code_name(code),
          octet_code_name(expected), octet_last_error(), words);
}
#define EXPECT_OK(call) Expect(__LINE__, (call), OCTET_OK, "")
#define EXPECT_INVALID(call, words) Expect(__LINE__, (call), OCTET_INVALID_ARGUMENT, words)
#define EXPECT_CODE(call, code, words) Expect(__LINE__, (call), code, words)
#define EXPECT_TRUE(condition) \
  Expect(__LINE__, (condition) ? OCTET_OK : octet_fail(OCTET_UNKNOWN, ""), OCTET_OK, #condition)

static const octet_ep_config kConfig = {.size = sizeof(octet_ep_config),
                                        .num_experts = 4,
                                        .topk = 2,
                                        .hidden = 64,
                                        .max_tokens_per_rank = 4};

static void Nulls(octet_domain* node, octet_ep* ep) {
  octet_domain* domain = NULL;
  octet_ep* other = NULL;
  octet_domain_info info = {.size = sizeof info};
  EXPECT_OK(octet_domain_destroy(NULL));
  octet_ep_destroy(NULL);
  octet_memory_destroy(NULL);
  EXPECT_TRUE(octet_memory_data(NULL) == NULL);
  EXPECT_TRUE(octet_model_family(NULL)[0] == 0);
  EXPECT_INVALID(octet_node_create(NULL, NULL), "octet_node_create: node is null");
  EXPECT_INVALID(octet_domain_get_info(NULL, &info), "octet_domain_get_info: domain is null");
  EXPECT_INVALID(octet_domain_get_info(node, NULL), "info is null");
  EXPECT_INVALID(octet_domain_run(node, NULL, NULL), "octet_domain_run: body is null");
  EXPECT_INVALID(octet_ep_create(NULL, &kConfig, NULL, &other), "domain is null");
  EXPECT_INVALID(octet_ep_create(node, NULL, NULL, &other), "config is null");
  EXPECT_INVALID(octet_ep_create(node, &kConfig, NULL, NULL), "ep is null");
  EXPECT_INVALID(octet_ep_dispatch(ep, NULL, NULL, NULL), "octet_ep_dispatch: rank is null");
  EXPECT_INVALID(octet_layer_load(NULL, NULL), "layer is null");
  EXPECT_INVALID(octet_layer_loads(NULL, NULL, NULL), "layer is null");
  EXPECT_INVALID(octet_layer_prepare(NULL, NULL, NULL, 1, 0), "layer is null");
  EXPECT_INVALID(octet_layer_apply(NULL, NULL), "layer is null");
  EXPECT_INVALID(octet_layer_get_placement(NULL, NULL, NULL), "layer is null");
  EXPECT_INVALID(octet_ep_loads(NULL, NULL, NULL), "ep is null");
  EXPECT_CODE(octet_ep_loads(ep, NULL, NULL), OCTET_FAILED_PRECONDITION, "loads.count");
  EXPECT_INVALID(octet_plan_placement(NULL, 1, 1, 1, NULL), "loads is null");
  EXPECT_INVALID(octet_plan_moves(NULL, 0, NULL, NULL), "args is null");
  EXPECT_INVALID(octet_model_open(NULL, NULL), "folder is null");
  EXPECT_INVALID(octet_value_of_name("strategy", NULL, NULL), "name is null");
  EXPECT_TRUE(domain == NULL && other == NULL);
}

static void Sizes(octet_domain* node) {
  octet_ep* ep = NULL;
  octet_ep_config config = kConfig;
  config.size = 0;
  EXPECT_INVALID(octet_ep_create(node, &config, NULL, &ep),
                 "octet_ep_create: config->size is 0; set it to the sizeof");
  config.size = sizeof config + 8;
  EXPECT_INVALID(octet_ep_create(node, &config, NULL, &ep), "compiled for a later version");
  octet_domain_info info = {.size = sizeof info + 8};
  EXPECT_INVALID(octet_domain_get_info(node, &info), "info->size is");
  // An older program's: without what came behind max_tokens_per_rank, which is not read.
  config.size = offsetof(octet_ep_config, dtype);
  config.dtype = 77;
  EXPECT_OK(octet_ep_create(node, &config, NULL, &ep));
  memset(&config, 0x55, sizeof config);
  config.size = offsetof(octet_ep_config, strategy);
  EXPECT_OK(octet_ep_get_config(ep, &config));
  EXPECT_TRUE(config.hidden == 64 && config.dtype == OCTET_BFLOAT16);
  EXPECT_TRUE(config.strategy == 0x55555555);
  octet_ep_destroy(ep);
}

static void Values(octet_domain* node) {
  octet_ep* ep = NULL;
  octet_memory* memory = NULL;
  octet_ep_config config = kConfig;
  config.dtype = 9;
  EXPECT_INVALID(octet_ep_create(node, &config, NULL, &ep),
                 "octet_ep_create: dtype is 9, and must be one of 0 (bf16), 1 (fp16)");
  config = kConfig;
  config.strategy = -1;
  EXPECT_INVALID(octet_ep_create(node, &config, NULL, &ep), "strategy is -1, and must be one of");
  config = kConfig;
  config.hidden = 63;
  EXPECT_INVALID(octet_ep_create(node, &config, NULL, &ep), "hidden");
  EXPECT_INVALID(octet_memory_create(node, 2, 8, &memory), "rank is 2, and this node has 2");
  EXPECT_CODE(octet_memory_create(node, 0, UINT64_C(1) << 60, &memory), OCTET_RESOURCE_EXHAUSTED,
              "1152921504606846976 bytes");
  EXPECT_TRUE(ep == NULL && memory == NULL);
  octet_layer* layer = NULL;
  octet_layer_config layer_config = {.size = sizeof layer_config};
  EXPECT_INVALID(octet_layer_create(node, &layer_config, NULL, &layer), "num_experts");
  octet_model* model = NULL;
  EXPECT_CODE(octet_model_open("/no/such/folder", &model), OCTET_NOT_FOUND, "/no/such/folder");
  int32_t value = 0;
  const char* name = NULL;
  EXPECT_OK(octet_value_of_name("strategy", "low_latency", &value));
  EXPECT_TRUE(value == OCTET_LOW_LATENCY);
  EXPECT_OK(octet_name_of_value("dtype", OCTET_FLOAT16, &name));
  EXPECT_TRUE(strcmp(name, "fp16") == 0);
  EXPECT_INVALID(octet_value_of_name("strategy", "fastest", &value), "not one of auto, direct");
  EXPECT_INVALID(octet_value_of_name("strategies", "auto", &value), "kind 'strategies' is not one");
  octet_node_options many = {.size = sizeof many, .num_ranks = 1000};
  octet_domain* other = NULL;
  EXPECT_INVALID(octet_node_create(&many, &other), "1000 ranks");
}

typedef struct Bad {
  octet_ep* ep;
  octet_domain* node;
  octet_memory* memory[2];
} Bad;

static int32_t InsideARun(octet_rank* rank, void* user) {
  Bad* bad = user;
  octet_rank_info info = {.size = sizeof info};
  octet_received received = {.size = sizeof received};
  EXPECT_OK(octet_rank_get_info(rank, &info));
  void* memory = octet_memory_data(bad->memory[info.rank]);
  octet_dispatch_args args = {.size = sizeof args, .x = memory, .topk_idx = memory};
  octet_combine_args combine = {.size = sizeof combine};
  EXPECT_TRUE(octet_last_error()[0] == 0);
  EXPECT_CODE(octet_domain_destroy(bad->node), OCTET_FAILED_PRECONDITION, "inside the body");
  EXPECT_CODE(octet_domain_run(bad->node, InsideARun, NULL), OCTET_FAILED_PRECONDITION,
              "inside the body");
  EXPECT_CODE(octet_copy(bad->node, 0, memory, memory, 8), OCTET_FAILED_PRECONDITION,
              "octet_rank_copy");
  EXPECT_INVALID(octet_ep_dispatch(bad->ep, rank, &args, NULL), "received is null");
  args.num_tokens = 5;
  EXPECT_INVALID(octet_ep_dispatch(bad->ep, rank, &args, &received), "num_tokens");
  args.num_tokens = INT64_C(1) << 40;
  EXPECT_INVALID(octet_ep_dispatch(bad->ep, rank, &args, &received), "out of range");
  args.num_tokens = 1;
  args.x = (const char*)memory + 2;
  EXPECT_INVALID(octet_ep_dispatch(bad->ep, rank, &args, &received), "x");
  octet_dispatch_handle handle = {{0}};
  EXPECT_INVALID(octet_ep_combine(bad->ep, rank, NULL, &combine), "handle is null");
  EXPECT_CODE(octet_ep_combine(bad->ep, rank, &handle, &combine), OCTET_FAILED_PRECONDITION,
              "the handle is of no dispatch");
  octet_failure failure = {.size = sizeof failure};
  EXPECT_TRUE(octet_last_failure(&failure) == OCTET_NOT_FOUND);
  return OCTET_OK;
}

static int32_t FailsOnRankOne(octet_rank* rank, void* user) {
  octet_rank_info info = {.size = sizeof info};
  (void)octet_rank_get_info(rank, &info);
  if (info.rank == 1 && user == NULL) return 12;
  if (info.rank == 1) return octet_fail(OCTET_DATA_LOSS, "my own sentence");
  return octet_rank_barrier(rank, "what never comes");
}

static int32_t OneRankDispatches(octet_rank* rank, void* user) {
  Bad* bad = user;
  octet_rank_info info = {.size = sizeof info};
  (void)octet_rank_get_info(rank, &info);
  void* memory = octet_memory_data(bad->memory[info.rank]);
  octet_dispatch_args args = {
      .size = sizeof args, .x = memory, .topk_idx = memory, .num_tokens = 1};
  octet_received received = {.size = sizeof received};
  return info.rank == 1 ? OCTET_OK : octet_ep_dispatch(bad->ep, rank, &args, &received);
}

static int told = 0;
static void OnFailure(int32_t code, const char* message, void* user) {
  told += code != OCTET_OK && message[0] != 0 && user == &told;
}

static void Runs(Bad* bad) {
  octet_failure failure = {.size = sizeof failure};
  EXPECT_OK(octet_domain_run(bad->node, InsideARun, bad));
  EXPECT_CODE(octet_domain_run(bad->node, FailsOnRankOne, NULL), OCTET_UNIMPLEMENTED,
              "a function of the caller's has returned 12 (UNIMPLEMENTED)");
  EXPECT_CODE(octet_domain_run(bad->node, FailsOnRankOne, bad), OCTET_DATA_LOSS,
              "rank 1: my own sentence");
  EXPECT_TRUE(octet_last_failure(&failure) == OCTET_OK && failure.rank == 1);
  EXPECT_TRUE(told == 2);
  EXPECT_CODE(octet_domain_run(bad->node, OneRankDispatches, bad), OCTET_ABORTED,
              "rank 1 has left Run");
  EXPECT_TRUE(octet_last_failure(&failure) == OCTET_OK);
  EXPECT_TRUE(failure.kind == OCTET_FAILURE_WAIT && failure.rank == 0 && failure.peer == 1);
  EXPECT_TRUE(strstr(failure.phase, "dispatch of 'experts of a test'") != NULL);
  EXPECT_OK(octet_domain_run(bad->node, InsideARun, bad));
}

static int32_t CallsAnother(octet_rank* rank, void* user) {
  (void)rank;
  EXPECT_CODE(octet_domain_call(user, 1, NULL, CallsAnother, user), OCTET_FAILED_PRECONDITION,
              "would wait for ever");
  EXPECT_CODE(octet_domain_settle(user), OCTET_FAILED_PRECONDITION, "rank 0 is in a call");
  return octet_fail(OCTET_DATA_LOSS, "my own sentence");
}

static void Adopted(octet_domain* of_create) {
  const int32_t devices[] = {1, 0};
  octet_domain* node = NULL;
  octet_node_options options = {.size = sizeof options, .quiet = 1};
  EXPECT_INVALID(octet_node_adopt(NULL, 2, NULL, &node), "octet_node_adopt: devices is null");
  EXPECT_INVALID(octet_node_adopt(devices, -1, NULL, &node), "num_devices is -1");
  EXPECT_OK(octet_node_adopt(devices, 2, &options, &node));
  EXPECT_INVALID(octet_domain_call(node, 0, NULL, NULL, NULL), "body is null");
  EXPECT_INVALID(octet_domain_call(node, 2, NULL, CallsAnother, node), "rank 2 is none");
  EXPECT_CODE(octet_domain_call(node, 0, NULL, CallsAnother, node), OCTET_DATA_LOSS,
              "my own sentence");
  EXPECT_CODE(octet_domain_call(node, 0, NULL, CallsAnother, node), OCTET_CANCELLED, "Settle");
  EXPECT_CODE(octet_domain_settle(node), OCTET_DATA_LOSS, "rank 0: my own sentence");
  EXPECT_OK(octet_domain_settle(node));
  EXPECT_CODE(octet_domain_call(of_create, 0, NULL, CallsAnother, node), OCTET_FAILED_PRECONDITION,
              "Node::Adopt");
  EXPECT_CODE(octet_domain_settle(of_create), OCTET_FAILED_PRECONDITION, "Node::Create");
  EXPECT_OK(octet_domain_destroy(node));
}

int main(void) {
  Bad bad = {0};
  octet_node_options options = {
      .size = sizeof options, .num_ranks = 2, .on_failure = OnFailure, .on_failure_user = &told};
  octet_ep_options named = {.size = sizeof named, .name = "experts of a test"};
  EXPECT_TRUE(octet_last_error()[0] == 0);
  EXPECT_OK(octet_node_create(&options, &bad.node));
  EXPECT_OK(octet_ep_create(bad.node, &kConfig, &named, &bad.ep));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_OK(octet_memory_create(bad.node, rank, 4096, &bad.memory[rank]));
  }
  if (failures == 0) {
    Nulls(bad.node, bad.ep);
    Sizes(bad.node);
    Values(bad.node);
    Runs(&bad);
    Adopted(bad.node);
  }
  // In the other order: what was made on a node may outlive it.
  EXPECT_OK(octet_domain_destroy(bad.node));
  octet_ep_destroy(bad.ep);
  for (int rank = 0; rank < 2; ++rank) octet_memory_destroy(bad.memory[rank]);
  if (failures == 0) puts("all refused");
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
