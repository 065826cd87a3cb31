#!/usr/bin/env bash
# The base variants at the size of conformer_small, on one CUDA GPU, in slices
# of ten minutes, on a machine without a network.
#
#   gpu_compare.sh [--dry] pack DATA BUNDLE
#       Here, with a network: put speech and Python packages into the folder
#       BUNDLE. With this repository's files it makes 64 MiB at most.
#   gpu_compare.sh [--dry] run BUNDLE OUT
#       There: train, decode and compare for a slice. The report so far goes
#       to the folder OUT, and so does gpu_compare.tar.gz: put that into BUNDLE
#       and the next slice goes on, on this machine or on another one.
#
# --dry packs no Python packages, and runs tiny models on the CPU.
#
# Environment: PYTHON (python3), SLICE_SECONDS (570), EPOCHS (30), VARIANTS (of
# plans/gpu_small.yaml; all), WORK (results/gpu_compare: what a slice leaves
# for the next one on the same machine), PYTHON_VERSION (3.12: there),
# PACKAGES (those that there are lacking).
set -euo pipefail
started=$SECONDS

recipe=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$recipe/../.." && pwd)
python=${PYTHON:-python3}
most_mib=64
splits=(train-clean-5 train-clean-100-extra heldout-dev-clean
    test-other-partial)
state=gpu_compare.tar.gz

fail() {
    echo "gpu_compare.sh: error: $1" >&2
    exit "${2:-1}"
}

kib() {
    du -skc --apparent-size "$@" | tail -n 1 | cut -f 1
}

pack() {
    local data=$1 bundle=$2 packages code size
    [ -d "$data" ] || fail "no such data folder: $data"
    mkdir -p "$bundle/wheels"
    if [ "$dry" = no ]; then
        packages=${PACKAGES:-speechbrain hyperpyyaml ruamel.yaml
            ruamel.yaml.clib soundfile cffi pycparser rapidfuzz}
        # shellcheck disable=SC2086  # a list of names
        "$python" -m pip download --quiet --no-deps --only-binary=:all: \
            --python-version "${PYTHON_VERSION:-3.12}" --implementation cp \
            --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 \
            --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
            --constraint "$repository/constraints.txt" \
            --dest "$bundle/wheels" $packages
    fi
    code=$(cd "$repository" && git ls-files -z | xargs -0 du -skc \
        --apparent-size 2>/dev/null | tail -n 1 | cut -f 1)
    size=$(((most_mib * 1024 - code - $(kib "$bundle/wheels")) / 1024 - 1))
    "$python" -m mala_asr.training.compare.bundle pack "$data" \
        "$bundle/speech.tar" "${splits[@]}" --max-mib "$size"
    echo "$bundle and the repository: $((code + $(kib "$bundle"))) KiB"
}

install_packages() {
    local bundle=$1 wheels=()
    shopt -s nullglob
    wheels=("$bundle"/wheels/*.whl)
    shopt -u nullglob
    if [ "${#wheels[@]}" -gt 0 ]; then
        "$python" -m pip install --quiet --no-index --no-deps --no-compile \
            --upgrade --target "$work/site" "${wheels[@]}"
    fi
    export PYTHONPATH="$repository:$work/site${PYTHONPATH:+:$PYTHONPATH}"
}

# What is small: outcomes, curves and transcripts. Weights stay on the machine.
keep() {
    [ -d "$work/runs" ] || return 0
    mkdir -p "$out"
    tar -C "$work" --exclude save --exclude features --exclude manifests \
        --exclude .lock -czf "$out/.$state" runs
    mv "$out/.$state" "$out/$state"
    if [ -d "$work/runs/report" ]; then
        cp "$work"/runs/report/{README.md,results.json,learning_curves.png} \
            "$out" 2>/dev/null || true
    fi
}

run() {
    local bundle=$1 left overrides options=(--device cuda)
    out=$2  # the trap below runs outside this function
    [ -f "$bundle/speech.tar" ] || fail "no $bundle/speech.tar; pack it first"
    work=${WORK:-$repository/results/gpu_compare}
    mkdir -p "$work"
    # Absolute, because the rest runs elsewhere.
    work=$(cd "$work" && pwd)
    install_packages "$bundle"
    if [ ! -d "$work/runs" ] && [ -f "$bundle/$state" ]; then
        tar -C "$work" -xzf "$bundle/$state"
    fi
    if [ ! -f "$work/unpacked" ]; then
        "$python" -m mala_asr.training.compare.bundle unpack \
            "$bundle/speech.tar" "$work/data" >&2
        touch "$work/unpacked"
    fi
    overrides="number_of_epochs: ${EPOCHS:-30}"
    if [ "$dry" = yes ]; then
        options=(--device cpu)
        overrides="$overrides, num_workers: 0, batch_seconds: 8,
            num_buckets: 2, schedule: {warmup_steps: 4}, model: {d_model: 64,
            num_encoder_layers: 1, num_decoder_layers: 1, d_ffn: 64}"
    fi
    if [ -n "${VARIANTS:-}" ]; then
        # shellcheck disable=SC2206  # a list of names
        options+=(--only $VARIANTS)
    fi
    trap keep EXIT
    # Half a minute is for stopping and for the report.
    left=$((${SLICE_SECONDS:-570} - (SECONDS - started) - 30))
    [ "$left" -gt 0 ] || fail "the slice was over before it began"
    "$python" "$recipe/compare.py" "$recipe/plans/gpu_small.yaml" \
        --data_folder "$work/data" --output_folder "$work/runs" \
        --feature_folder "$work/features" --overrides "{$overrides}" \
        --max-hours "$(awk "BEGIN { print $left / 3600 }")" "${options[@]}"
}

dry=no
if [ "${1:-}" = --dry ]; then
    dry=yes
    shift
fi
case "${1:-}:$#" in
    pack:3) pack "$2" "$3" ;;
    run:3) run "$2" "$3" ;;
    *)
        sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
