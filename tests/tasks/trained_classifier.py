"""A scorer whose tiny BERT is trained as it is built, on words that are bad or harmless."""

import torch

from astra_core.scorer import Scorer

BAD, HARMLESS = ("rude", "vile", "cruel", "nasty"), ("kind", "calm", "nice", "good")
_PLAIN = ("you", "are", "so", "it", "was", "the")
_IDS = {word: index + 1 for index, word in enumerate((*BAD, *HARMLESS, *_PLAIN))}


class TrainedClassifier(Scorer):
    version = "trained classifier 1"

    def __init__(self, options):
        from transformers import BertConfig, BertForSequenceClassification

        super().__init__(options)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = BertConfig(
                vocab_size=len(_IDS) + 1,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=16,
                max_position_embeddings=8,
            )
            self._model = BertForSequenceClassification(config)
            self._train()

    def _train(self):
        plain = [*_PLAIN, *_PLAIN]
        texts = [f"{a} {b} {word}" for a in plain for b in _PLAIN for word in BAD + HARMLESS]
        labels = torch.tensor([text.split()[-1] in BAD for text in texts]).long()
        optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-2)
        self._model.train()
        for _ in range(30):
            loss = self._model(input_ids=_ids(texts), labels=labels).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self._model.eval()

    @torch.no_grad()
    def score(self, texts):
        if not texts:
            return []
        return self._model(input_ids=_ids(texts)).logits.softmax(-1)[:, 1].tolist()


def _ids(texts):
    return torch.tensor([[_IDS[word] for word in text.split()] for text in texts])
