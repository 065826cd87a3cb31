"""A training from its config to its word error rates.

Prepare manifests, train the tokenizer, keep features, fit, and evaluate the
average of the best checkpoints on every test set. Each part is skipped where
an earlier run has done it, so the same command starts and resumes.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import speechbrain as sb
import torch
from speechbrain.utils.distributed import (
    ddp_init_group,
    get_rank,
    if_main_process,
    is_distributed_initialized,
    run_on_main,
)
from speechbrain.utils.epoch_loop import EpochCounter
from speechbrain.utils.run_opts import RunOptions

from mala_asr.data.librispeech import prepare_librispeech
from mala_asr.data.manifest import Utterance, read_manifest
from mala_asr.data.tokenizer import load_tokenizer, train_tokenizer
from mala_asr.decoding.recognizer import Recognizer
from mala_asr.errors import MalaError, os_error_text
from mala_asr.models.checkpoints import load_averaged
from mala_asr.scoring.report import summary_text
from mala_asr.scoring.wer import WerReport
from mala_asr.training import speech
from mala_asr.training.allocator import keep_freed_memory
from mala_asr.training.brain import BEST_KEY, ASRBrain, EpochLogger, Recipe
from mala_asr.training.checkpoints import AtomicCheckpointer, RandomState
from mala_asr.training.config import (
    ConfigError,
    ConfigSource,
    build_config,
    config_path,
    describe_config,
    read_config,
)
from mala_asr.training.curve import LearningCurve
from mala_asr.training.data_pipeline import (
    EpochBatches,
    SpeechDataset,
    drop_unalignable,
    fixed_loader,
    loader_options,
)
from mala_asr.training.evaluate import evaluate_set, write_results
from mala_asr.training.run_folder import (
    check_same_model,
    check_same_tokenizer,
    describe_run,
    is_resumed,
    sole_writer,
)
from mala_asr.training.settings import (
    check_run_options,
    check_values,
    decoding_options,
)
from mala_asr.training.tensorboard import TensorBoardEpochs

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor
    from torch.utils.data import DataLoader

    from mala_asr.models.asr import MalaASR

logger = logging.getLogger(__name__)

HELP = """\
usage: train.py CONFIG [--KEY VALUE ...] [RUN OPTIONS]
       mala-asr train CONFIG [--KEY VALUE ...] [RUN OPTIONS]

Train and evaluate a model as a config says. The same command resumes a
training that was interrupted. With CONFIG, --help lists its keys.

Any key of the config may follow with another value, in YAML:
  --number_of_epochs 40 --test_splits "[test-clean, test-other]"
and a part of a key as a mapping; the other parts stay:
  --schedule "{peak: 0.001}" --model "{d_model: 144}"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a training as a command.

    Arguments
    ---------
    argv : sequence of str, optional
        Config, SpeechBrain's run options, and overrides of the config's keys.

    Returns
    -------
    int
        0, or 1 after an expected error, or 130 when interrupted.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if {"-h", "--help"} & set(arguments):
            print_help(arguments)
            return 0
        path, run_opts, overrides = sb.parse_arguments(arguments)
        reports = run(path, overrides, run_opts)
    except MalaError as error:
        print(f"mala-asr: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"mala-asr: error: {os_error_text(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "mala-asr: interrupted; the same command resumes from the last "
            "checkpoint",
            file=sys.stderr,
        )
        return 130
    for name, report in reports.items():
        print(f"{name}: {summary_text(report).splitlines()[0]}")
    return 0


def print_help(arguments: Sequence[str]) -> None:
    """Say what can follow a config, with its own keys and their values.

    Arguments
    ---------
    arguments : sequence of str
        The command line; its config is looked at if there is one.

    Raises
    ------
    MalaError
        If the config cannot be read.
    """
    config = next((a for a in arguments if not a.startswith("-")), None)
    keys = None if config is None else describe_config(config_path(config))
    print(HELP)
    if keys is not None:
        print(f"keys of {config} and their values:\n{keys}\n")
    options = io.StringIO()
    with suppress(SystemExit), redirect_stdout(options):
        sb.parse_arguments(["--help"])
    # Without its usage, which names every option and nothing of the config.
    listed = options.getvalue().partition("options:")[2]
    print(f"run options of SpeechBrain:{listed}", end="")


def run(
    config: str | Path,
    overrides: str = "",
    run_opts: RunOptions | None = None,
    last_epoch: int | None = None,
) -> dict[str, WerReport]:
    """Train and evaluate as a config says.

    Arguments
    ---------
    config : str or Path
        The config's file, or the name of one that ships with the package.
    overrides : str
        YAML text whose keys replace the config's.
    run_opts : RunOptions, optional
        SpeechBrain's run options.
    last_epoch : int, optional
        Where to stop early, on the schedule of the whole training.

    Returns
    -------
    dict
        The report of each test set; empty on other than the main process.

    Raises
    ------
    MalaError
        For everything that a user can put right.
    """
    run_opts = run_opts or RunOptions()
    source = read_config(config_path(config), overrides)
    hparams = build_config(source)
    check_values(hparams)
    options = check_run_options(run_opts, hparams)
    ddp_init_group(run_opts)
    folder = Path(hparams["output_folder"])
    only_reads = run_opts.test_only or options.get("test_only", False)
    with (
        sole_writer(folder)
        if if_main_process() and not only_reads
        else nullcontext()
    ):
        start_experiment(folder, source)
        return _train_and_evaluate(
            hparams, folder, run_opts, options, last_epoch
        )


def _train_and_evaluate(
    hparams: dict[str, Any],
    folder: Path,
    run_opts: RunOptions,
    options: dict[str, Any],
    last_epoch: int | None,
) -> dict[str, WerReport]:
    sets = read_sets(hparams, folder)
    saved = is_resumed(folder)
    if saved:
        check_same_tokenizer(folder, hparams)
    tokenizer = get_tokenizer(hparams, folder, sets["train"], saved)
    sb.utils.seed_everything(hparams["seed"], verbose=False)
    model = make_model(hparams, len(tokenizer))
    if saved:
        check_same_model(folder, model)
    brain = make_brain(hparams, folder, model, tokenizer, run_opts, options)
    # A decoder that does not fit is refused before the hours of training.
    Recognizer(model, tokenizer, decoding_options(hparams))
    if not brain.test_only and not _is_finished(brain, hparams):
        run_on_main(describe_run, args=[hparams, folder, model, sets])
        fit(brain, hparams, sets, tokenizer, saved, last_epoch)
    if not if_main_process():
        return {}
    return evaluate(brain, hparams, folder, sets["test"])


def start_experiment(folder: Path, source: ConfigSource) -> None:
    """Make the run folder with its config, environment and log.

    Arguments
    ---------
    folder : Path
        The run folder.
    source : ConfigSource
        The config.
    """
    # SpeechBrain logs to standard output, which is for results.
    output = io.StringIO()
    with redirect_stdout(output):
        sb.create_experiment_directory(
            folder, hyperparams_to_save=source.file, overrides=source.changes
        )
    for handler in logging.getLogger().handlers:
        if getattr(handler, "stream", None) is output:
            assert isinstance(handler, logging.StreamHandler)
            handler.setStream(sys.stderr)
            handler.addFilter(_is_for_console)
            handler.setFormatter(logging.Formatter("%(message)s"))
    # SpeechBrain asks every library for its debugging remarks.
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("mala_asr").setLevel(logging.DEBUG)
    if keep_freed_memory():
        logger.info("glibc was told to keep freed memory for the next step")


def read_sets(
    hparams: dict[str, Any], folder: Path
) -> dict[str, dict[str, list[Utterance]]]:
    """Prepare the manifests of all splits and read them.

    Arguments
    ---------
    hparams : dict
        The config.
    folder : Path
        The run folder; the manifests go to its ``manifests``.

    Returns
    -------
    dict
        The splits of ``train``, ``valid`` and ``test``, and the utterances
        of each.
    """
    names = {
        use: list(hparams[f"{use}_splits"])
        for use in ("train", "valid", "test")
    }
    for use in ("train", "valid"):
        if not names[use]:
            raise ConfigError(f"{use}_splits is empty; name a split")
    splits = list(dict.fromkeys(sum(names.values(), [])))
    manifests = folder / "manifests"
    run_on_main(
        prepare_librispeech, args=[hparams["data_folder"], manifests, splits]
    )
    read = {name: read_manifest(manifests / f"{name}.csv") for name in splits}
    return {use: {n: read[n] for n in chosen} for use, chosen in names.items()}


def get_tokenizer(
    hparams: dict[str, Any],
    folder: Path,
    train_splits: dict[str, list[Utterance]],
    saved: bool,
) -> SentencePieceProcessor:
    """Train the run's tokenizer, or take the one its weights belong to.

    Arguments
    ---------
    hparams : dict
        The config.
    folder : Path
        The run folder, which holds ``tokenizer.model``.
    train_splits : dict
        The training utterances.
    saved : bool
        Whether the run already has weights.

    Returns
    -------
    SentencePieceProcessor
        The tokenizer.
    """
    if not saved:
        texts = [u.wrd for split in train_splits.values() for u in split]
        run_on_main(
            train_tokenizer,
            args=[texts, folder, hparams["vocab_size"], hparams["token_type"]],
        )
    return load_tokenizer(folder / "tokenizer.model")


def make_model(hparams: dict[str, Any], vocab_size: int) -> MalaASR:
    """Build the model of a config.

    Arguments
    ---------
    hparams : dict
        The config.
    vocab_size : int
        Number of tokens.

    Returns
    -------
    MalaASR
        The model, its weights drawn anew.

    Raises
    ------
    ConfigError
        If an argument of it does not exist.
    ModelOptionError
        If its options do not fit.
    """
    try:
        return hparams["model"](vocab_size=vocab_size)
    except TypeError as error:
        raise ConfigError(f"model: {error}") from error


def make_brain(
    hparams: dict[str, Any],
    folder: Path,
    model: MalaASR,
    tokenizer: SentencePieceProcessor,
    run_opts: RunOptions,
    options: dict[str, Any],
) -> ASRBrain:
    """Put the training loop together.

    Arguments
    ---------
    hparams : dict
        The config.
    folder : Path
        The run folder.
    model : MalaASR
        The model.
    tokenizer : SentencePieceProcessor
        Its tokenizer.
    run_opts : RunOptions
        What the command line gave.
    options : dict
        The run options of the config.

    Returns
    -------
    ASRBrain
        The loop, its counter and random state in the checkpoints.
    """
    with redirect_stdout(sys.stderr):  # it prints what it finds missing
        from speechbrain.utils.train_logger import FileTrainLogger

    counter = EpochCounter(hparams["number_of_epochs"])
    loggers: list[EpochLogger] = [
        FileTrainLogger(str(folder / "train_log.txt")),
        LearningCurve(folder),
    ]
    if hparams["tensorboard"] and if_main_process():
        loggers.append(TensorBoardEpochs(folder / "tensorboard"))
    brain = ASRBrain(
        model,
        tokenizer,
        Recipe(
            optimizer=hparams["opt_class"],
            schedule=hparams["schedule"],
            ctc_weight=hparams["ctc_weight"],
            label_smoothing=hparams["label_smoothing"],
            augment=hparams["augment"],
            chunk_sampler=hparams["chunk_sampler"],
            keep_checkpoints=hparams["keep_checkpoints"],
        ),
        AtomicCheckpointer(
            folder / "save",
            {"model": model, "counter": counter, "random": RandomState()},
        ),
        loggers,
        run_opts,
        options,
    )
    brain.epoch_counter = counter
    return brain


def fit(
    brain: ASRBrain,
    hparams: dict[str, Any],
    sets: dict[str, dict[str, list[Utterance]]],
    tokenizer: SentencePieceProcessor,
    saved: bool,
    last_epoch: int | None = None,
) -> None:
    """Train until the last epoch, from the newest checkpoint if there is one.

    Arguments
    ---------
    brain : ASRBrain
        The loop.
    hparams : dict
        The config.
    sets : dict
        What `read_sets` gave.
    tokenizer : SentencePieceProcessor
        The tokenizer.
    saved : bool
        Whether the run already has weights, and the statistics with them.
    last_epoch : int, optional
        Where to stop early, on the schedule of the whole training.
    """
    model, speeds = brain.model, list(hparams["speeds"])
    train_set = training_set(model, hparams, sets, tokenizer)
    valid_set = _joined(sets["valid"])
    cache = speech.filled_cache(
        model,
        hparams["feature_cache"],
        hparams["feature_folder"],
        needs=[(train_set, speeds), (valid_set, [1.0])],
    )
    if not saved:
        speech.set_statistics(model, train_set, cache)

    load = speech.speech_loader(model, cache)
    seed = hparams["seed"]
    train_data = SpeechDataset(train_set, tokenizer, load, speeds, seed)
    valid_data = SpeechDataset(valid_set, tokenizer, load)
    train_loader = _train_loader(brain, hparams, train_data)
    valid_loader = fixed_loader(
        valid_data,
        hparams["eval_batch_seconds"],
        num_workers=hparams["num_workers"],
    )
    _log_batches(brain, hparams, train_loader)
    # From here on, every process draws random numbers of its own.
    torch.manual_seed(seed + (get_rank() or 0))
    brain.fit(brain.epoch_counter, train_loader, valid_loader, last_epoch)


def training_set(
    model: MalaASR,
    hparams: dict[str, Any],
    sets: dict[str, dict[str, list[Utterance]]],
    tokenizer: SentencePieceProcessor,
) -> list[Utterance]:
    """Give the utterances to train on: all that can be aligned.

    Arguments
    ---------
    model : MalaASR
        Its frames.
    hparams : dict
        The config.
    sets : dict
        What `read_sets` gave.
    tokenizer : SentencePieceProcessor
        The tokenizer.

    Returns
    -------
    list of Utterance
        In the order of the manifests.
    """
    fastest = max(hparams["speeds"])
    return drop_unalignable(
        _joined(sets["train"]),
        tokenizer,
        lambda seconds: speech.fewest_frames(model, seconds, fastest),
    )


def evaluate(
    brain: ASRBrain,
    hparams: dict[str, Any],
    folder: Path,
    test_splits: dict[str, list[Utterance]],
) -> dict[str, WerReport]:
    """Evaluate the average of the best checkpoints; the run stays as it is.

    Arguments
    ---------
    brain : ASRBrain
        The loop, for its model, tokenizer and checkpoints.
    hparams : dict
        The config.
    folder : Path
        The run folder, which gets the results.
    test_splits : dict
        The utterances of each set.

    Returns
    -------
    dict
        The report of each set.
    """
    count = hparams["average_checkpoints"]
    weights, names = load_averaged(
        brain.checkpointer.checkpoints_dir, count, BEST_KEY
    )
    brain.model.load_state_dict(weights)
    brain.model.eval()
    logger.info("evaluating the average of %s", ", ".join(names))
    decoding = decoding_options(hparams)
    recognizer = Recognizer(brain.model, brain.tokenizer, decoding)
    reports = {}
    for name, utterances in test_splits.items():
        with brain.evaluation_ctx:
            reports[name] = evaluate_set(
                recognizer,
                utterances,
                hparams["eval_batch_seconds"],
                name,
                progress=not brain.noprogressbar,
            )
        logger.info("%s\n%s", name, summary_text(reports[name]))
    write_results(
        folder, reports, {**decoding.settings(), "checkpoints": names}
    )
    return reports


def _is_for_console(record: logging.LogRecord) -> bool:
    """SpeechBrain's remarks go to log.txt alone, but for its epochs' lines."""
    if record.name == "speechbrain.utils.train_logger":
        # Its one warning, that torchvision is missing, concerns figures
        # that nothing here saves.
        return record.levelno == logging.INFO
    return record.levelno >= logging.WARNING or not record.name.startswith(
        "speechbrain"
    )


def _joined(splits: dict[str, list[Utterance]]) -> list[Utterance]:
    return [utterance for split in splits.values() for utterance in split]


def _is_finished(brain: ASRBrain, hparams: dict[str, Any]) -> bool:
    newest = brain.checkpointer.find_checkpoint()
    return (
        newest is not None
        and newest.meta["end-of-epoch"]
        and newest.meta["epoch"] >= hparams["number_of_epochs"]
    )


def _train_loader(
    brain: ASRBrain, hparams: dict[str, Any], dataset: SpeechDataset
) -> DataLoader:
    batches = EpochBatches(
        dataset,
        hparams["batch_seconds"],
        hparams["num_buckets"],
        hparams["seed"],
    )
    # Told about epochs by the brain; with several processes it wraps this.
    brain.train_sampler = batches
    return brain.make_dataloader(
        dataset,
        sb.Stage.TRAIN,
        batch_sampler=batches,
        **loader_options(
            num_workers=hparams["num_workers"],
            pin_memory=brain.device_type == "cuda",
        ),
    )


def _log_batches(
    brain: ASRBrain, hparams: dict[str, Any], loader: DataLoader
) -> None:
    processes = (
        torch.distributed.get_world_size()
        if is_distributed_initialized()
        else 1
    )
    factor = brain.grad_accumulation_factor
    logger.info(
        "a step sees up to %.0f s of speech: batches of %.0f s x %d "
        "accumulated x %d processes; %d batches in an epoch",
        hparams["batch_seconds"] * factor * processes,
        hparams["batch_seconds"],
        factor,
        processes,
        len(loader),
    )
