"""Audio, corpora, manifests, tokenizers and cached features."""
