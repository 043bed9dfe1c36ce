#!/usr/bin/env python3
"""Writes tests/recorded/tokenizer.npz: what PyPI's `tokenizers` learns from a text, and the ids that it gives to random strings.

The text is the beginning of TEXT followed by made-up words of several scripts. Entries, all vectors of bytes or Int32:
  text            the text
  vocab, merges   the files vocab.json and merges.txt that were learned from it
  strings, string_ends, ids, id_ends     10,000 strings, one after another, and their ids
Needs the packages numpy and tokenizers (made with tokenizers 0.23.3).
Usage: make_tokenizer.py TEXT OUTPUT
"""
import os
import random
import sys
import tempfile
import unicodedata

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

VOCABULARY, MIN_FREQUENCY, STRINGS, BEGINNING = 1500, 2, 10000, 40000
ALPHABETS = ["abcdefghij", "äöüßéèçñ", "абвгдежзик", "αβγδεζηθ", "אבגדה", "ابتثج", "कखगघङािी", "漢字仮名交文", "かなカナ",
             "0123456789", "²³½Ⅷ٣", "!?.,;:'\"()-", "’“”…—€", "😀👍🏽🎉"]
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u001c", "\u200b"]
ENDINGS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'x", "''s", " 's", "’s"]


def made_text(rng):
    words = ["".join(rng.choice(a) for _ in range(rng.randint(1, 7))) for a in ALPHABETS for _ in range(12)]
    weights = [1 / (1 + i % 12) for i in range(len(words))]
    out = []
    for _ in range(6000):
        out.append(rng.choices(words, weights)[0])
        out.append(rng.choice(SPACES if rng.random() < 0.3 else [" "]))
    return "".join(out)


def any_character(rng):
    while True:
        c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)])
        if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co"):
            return chr(c)


def made_string(rng, words):
    out = []
    for _ in range(rng.randint(0, 6)):
        kind = rng.randrange(6)
        if kind < 2:
            out.append(rng.choice(words))
        elif kind == 2:
            out.append(rng.choice(ENDINGS))
        elif kind == 3:
            out.append("".join(rng.choice(rng.choice(ALPHABETS)) for _ in range(rng.randint(1, 4))))
        elif kind == 4:
            out.append("".join(any_character(rng) for _ in range(rng.randint(1, 3))))
        if rng.random() < 0.7:
            out.append(rng.choice(SPACES))
    return "".join(out)


def learn(text):
    """The tokenizer, and the texts of its two files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, min_frequency=MIN_FREQUENCY, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text")
        with open(path, "wb") as f:
            f.write(text.encode())
        tokenizer.train([path], trainer)
        files = tokenizer.model.save(folder)
        return tokenizer, [open(name, "rb").read() for name in sorted(files, reverse=True)]


def main():
    rng = random.Random(1)
    with open(sys.argv[1], encoding="utf-8") as f:
        text = f.read(BEGINNING) + "\n" + made_text(rng)
    tokenizer, (vocab, merges) = learn(text)
    words = text.split()
    strings = [made_string(rng, words) for _ in range(STRINGS)]
    ids = [tokenizer.encode(s).ids for s in strings]
    raw = [s.encode() for s in strings]
    bytes_of = lambda b: np.frombuffer(b, np.uint8)  # noqa: E731
    ends = lambda parts: np.cumsum([len(p) for p in parts]).astype(np.int32)  # noqa: E731
    np.savez_compressed(sys.argv[2], text=bytes_of(text.encode()), vocab=bytes_of(vocab), merges=bytes_of(merges),
                        strings=bytes_of(b"".join(raw)), string_ends=ends(raw),
                        ids=np.array(sum(ids, []), np.int32), id_ends=ends(ids))
    print(f"{sys.argv[2]}: {len(text)} characters, {len(merges.splitlines()) - 1} merges, {len(strings)} strings, "
          f"{sum(map(len, ids))} ids")


if __name__ == "__main__":
    main()
