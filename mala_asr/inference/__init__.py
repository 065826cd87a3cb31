"""Model folders and the transcription of audio files."""
