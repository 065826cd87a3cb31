#!/usr/bin/env python3
"""Train and evaluate a Conformer on LibriSpeech or a corpus in its layout.

To train, and to resume a training that was interrupted:

    python recipes/LibriSpeech/train.py hparams/mini_librispeech_mala.yaml \\
        --data_folder /path/to/LibriSpeech

On several GPUs:

    torchrun --nproc_per_node 4 recipes/LibriSpeech/train.py \\
        hparams/librispeech_conformer_small_mala.yaml --data_folder PATH

Any key of the config may follow as --key value, and so may SpeechBrain's run
options: --device, --precision, --test_only, --debug and others.
"""

import sys

from mala_asr.training.train import main

if __name__ == "__main__":
    sys.exit(main())
