#!/bin/bash
# Runs a whole Mixture-of-Experts layer: writes a small model folder with random weights, as
# transformers would, runs `octet layer` on it with at most four GPUs, emulated ones if there are
# none, and checks every step and y against NumPy.
#
#   tools/layer_demo.sh [FAMILY]   qwen3_moe unless said otherwise: mixtral, qwen2_moe, olmoe,
#                                  deepseek_v2, deepseek_v3, gpt_oss, glm4_moe, minimax_m2,
#                                  qwen3_next, kimi_k2, granitemoe, ernie4_5_moe,
#                                  hunyuan_v1_moe, llama4_text, qwen3_5_moe_text, phimoe
#   tools/layer_demo.sh --all      all families, DeepSeek-V3 with FP8 and gpt-oss with MXFP4 weights,
#                                  and Mixtral with all experts of a layer in two tensors
#
# OCTET=PATH takes that program instead of building one; of an installation, the default is `octet`.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(mixtral qwen2_moe qwen3_moe olmoe deepseek_v2 deepseek_v3 gpt_oss glm4_moe minimax_m2
  qwen3_next kimi_k2 granitemoe ernie4_5_moe hunyuan_v1_moe llama4_text
  qwen3_5_moe_text phimoe)
case ${1:-qwen3_moe} in
  --all) families=("${all[@]}" deepseek_v3:fp8 gpt_oss:mxfp4 mixtral:bf16:fused) ;;
  *)
    if [ $# -gt 1 ] || [[ " ${all[*]} " != *" ${1:-qwen3_moe} "* ]]; then
      sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' tools/layer_demo.sh >&2
      exit 2
    fi
    families=("${1:-qwen3_moe}")
    ;;
esac

python=
for candidate in python3 /usr/bin/python3; do
  if "$candidate" -c 'import numpy' 2>/dev/null; then
    python=$candidate
    break
  fi
done
if [ -z "$python" ]; then
  echo "layer_demo: no Python here has NumPy; tools/install_packages.sh plot installs it" >&2
  exit 1
fi
export PYTHONDONTWRITEBYTECODE=1

octet=${OCTET:-}
[ -n "$octet" ] || [ -e tools/build_octet.sh ] || octet=octet
if [ -n "$octet" ]; then
  gpus=$("$octet" topo | sed '/^# peer access/,$d' | grep -vc '^#')
else
  . tools/build_octet.sh
fi
for ranks in 4 2 1; do
  [ "$ranks" -gt "$gpus" ] || break
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for each in "${families[@]}"; do
  IFS=: read -r family dtype form <<<"$each"
  echo "== $family, ${dtype:=bf16} weights${form:+, $form}, 16 experts on $ranks GPUs" >&2
  "$python" tests/tools/cli/make_model.py "$folder/model" --family="$family" --dtype="$dtype" \
    --experts_as="${form:-each}" --hidden=256 --intermediate=128 --experts=16 --topk=4 \
    --shards=2 --tokens=42 --x="$folder/x.npy"
  mkdir -p "$folder/dump"
  "$octet" layer --model="$folder/model" --layer=0 --ranks="$ranks" --input="$folder/x.npy" \
    --output="$folder/y.npy" --dump="$folder/dump" --check --iters=0
  "$python" tests/tools/cli/moe_layer_oracle.py "$folder/model" "$folder/dump" \
    --x="$folder/x.npy" --y="$folder/y.npy"
  rm -rf "${folder:?}"/*
done
echo "layer_demo: passed: ${families[*]}: 42 tokens each, on $ranks GPUs, are what NumPy computes"
