"""Settings that cannot work are refused in one line, whoever gives them."""

from typing import Any

import pytest
from speechbrain.utils.run_opts import RunOptions

from mala_asr.decoding import DecodingOptions
from mala_asr.paths import hparams_file
from mala_asr.training.config import ConfigError, build_config, read_config
from mala_asr.training.settings import (
    TrainingError,
    check_run_options,
    check_values,
    decoding_options,
)


@pytest.mark.parametrize(
    "given, config, message",
    [
        ({"precision": "bf16"}, {}, "--precision bf16 is for GPUs"),
        ({}, {"precision": "fp16"}, "--precision fp16 is for GPUs"),
        ({"eval_precision": "fp16"}, {}, "--eval_precision fp16 is for GPUs"),
        ({"data_parallel_backend": True}, {}, "torchrun"),
        ({"device": "auto"}, {}, "leave it out"),
    ],
)
def test_options_that_cannot_work_are_refused(
    given: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    options = RunOptions.from_dictionary({"device": "cpu", **given})
    with pytest.raises(TrainingError, match=message):
        check_run_options(options, config)


def test_the_command_line_wins_over_the_config() -> None:
    options = RunOptions.from_dictionary({"device": "cpu", "precision": "fp32"})
    config = {"precision": "bf16", "max_grad_norm": 1.0, "seed": 1}
    assert check_run_options(options, config) == {
        "precision": "bf16",
        "max_grad_norm": 1.0,
    }


def _built(**changes: Any) -> dict[str, Any]:
    config = hparams_file("mini_librispeech_mala")
    return build_config(read_config(config, "data_folder: x")) | changes


def test_what_can_work_is_not_refused() -> None:
    check_values(_built())
    check_values(_built(vocab_size=100, batch_seconds=0.5, speeds=[1]))
    check_values(_built(augment=None, chunk_sampler=None))


@pytest.mark.parametrize(
    "key, value, wanted",
    [
        ("number_of_epochs", 1.5, "a whole number of at least 1"),
        ("number_of_epochs", True, "a whole number of at least 1"),
        ("number_of_epochs", None, "a whole number of at least 1"),
        ("num_buckets", 0, "a whole number of at least 1"),
        ("num_workers", -1, "a whole number of at least 0"),
        ("seed", 1.0, "a whole number of at least 0"),
        ("vocab_size", 30.5, "a whole number of at least 1"),
        ("batch_seconds", -3, "a number above 0"),
        ("batch_seconds", float("inf"), "a number above 0"),
        ("eval_batch_seconds", "48", "a number above 0"),
        ("label_smoothing", 1.1, "a number from 0 to 1"),
        ("ctc_weight", float("nan"), "a number from 0 to 1"),
        ("seed", 2**32, "give up to 4294967295"),
        ("speeds", [], "numbers from 0.1 to 10"),
        ("speeds", [1.0, 0], "numbers from 0.1 to 10"),
        ("speeds", ["fast"], "numbers from 0.1 to 10"),
        ("model", 5, "change its arguments"),
        ("schedule", None, "change its arguments"),
        ("augment", "none", "change its arguments"),
        ("output_folder", 2024, "write ./2024"),
        ("train_splits", [2024], "in quotes"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(
    key: str, value: object, wanted: str
) -> None:
    with pytest.raises(ConfigError, match=f"{key} is .*{wanted}"):
        check_values(_built(**{key: value}))


@pytest.mark.parametrize(
    "options, reason",
    [("{lr: high}", "float' and 'str"), ("{rate: 1}", "argument 'rate'")],
)
def test_an_optimizer_that_cannot_be_made(options: str, reason: str) -> None:
    config = hparams_file("mini_librispeech_mala")
    override = f"data_folder: x\nopt_class: {options}"
    with pytest.raises(ConfigError, match=f"opt_class: .*{reason}"):
        check_values(build_config(read_config(config, override)))


@pytest.mark.parametrize(
    "override, wanted",
    [
        ("schedule: {peak: 0}", "peak is 0; give a learning rate"),
        ("schedule: {peak: high}", "peak"),
        ("schedule: {warmup_steps: -5}", "warmup_steps is -5; give 0 or more"),
        ("schedule: {final_fraction: 2}", "final_fraction is 2; give one"),
        ("augment: {time_mask_width: [20, 0]}", "time_mask_width is .20, 0."),
        ("augment: {freq_mask_width: [5]}", "freq_mask_width is .5.; give"),
    ],
)
def test_parts_of_a_config_are_checked(override: str, wanted: str) -> None:
    config = hparams_file("mini_librispeech_mala")
    with pytest.raises(ConfigError, match=wanted):
        build_config(read_config(config, f"data_folder: x\n{override}"))


@pytest.mark.parametrize(
    "name, value",
    [
        ("optimizer_step_limit", "two"),
        ("optimizer_step_limit", "0"),
        ("grad_accumulation_factor", 1.5),
        ("nonfinite_patience", -1),
    ],
)
def test_run_options_are_checked_too(name: str, value: object) -> None:
    options = RunOptions.from_dictionary({"device": "cpu", name: value})
    with pytest.raises(ConfigError, match=f"{name} is {value}; give"):
        check_run_options(options, {})


def test_each_decoder_has_options_of_its_own() -> None:
    options = {"joint": {"beam_size": 5}, "ctc_beam": {"word_score": 1.0}}
    config = {"decoder": "ctc_beam", "decoder_options": options}
    assert decoding_options(config) == DecodingOptions(
        "ctc_beam", word_score=1.0
    )
    chosen = decoding_options({**config, "decoder": "joint"})
    assert chosen == DecodingOptions("joint", beam_size=5)
    assert decoding_options({**config, "decoder": "ctc_greedy"}).given() == {
        "decoder": "ctc_greedy"
    }


@pytest.mark.parametrize(
    "decoder, options, message",
    [
        ("magic", {}, "unknown decoder 'magic'"),
        ("ctc_greedy", {"magic": {}}, "unknown decoder 'magic'"),
        # Also those of decoders that are not chosen.
        ("ctc_greedy", {"joint": {"beem_size": 3}}, "did you mean beam_size"),
        ("joint", {"joint": {"lm": "a.bin"}}, "joint has no lm"),
        ("joint", {"joint": {"ctc_weight": 2}}, "ctc_weight is 2; give"),
        ("ctc_beam", {"ctc_beam": {"lm_weight": 1}}, "without a language"),
        ("joint", {"joint": 10}, "write the options by decoder"),
        ("joint", [1], "write the options by decoder"),
    ],
)
def test_options_of_decoders_are_checked(
    decoder: str, options: Any, message: str
) -> None:
    config = {"decoder": decoder, "decoder_options": options}
    with pytest.raises(ConfigError, match=message):
        decoding_options(config)
