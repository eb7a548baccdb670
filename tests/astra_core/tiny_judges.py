"""Tiny real models in folders, whose answers follow from weights that are set by hand."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from astra_core.conversation import Conversation, Message
from astra_core.judge import Exchange
from astra_core.rollout import Prompt
from astra_core.seeding import torch_seeded

MARKS = ("<end>", "<unk>", "[CLS]", "[SEP]")
CHAT = "{% for m in messages %}{{ m['role'] }} : {{ m['content'] }} {% endfor %}{{ 'go' }}"
ROLES = ("system", "user", "assistant", ":", "go")


def exchange(reply="bad", probe="why now", *, goal="", reference="", said=()):
    columns = {"goal": goal, "reference_reply": reference}
    prompt = Prompt.of("so", {name: text for name, text in columns.items() if text})
    messages = [
        Message(role, text)
        for pair in said
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return Exchange(Conversation(prompt).say(*messages), probe, reply)


def tokenizer(words, *, template=None, marks_ends=False):
    known = {word: at for at, word in enumerate(dict.fromkeys((*MARKS, *ROLES, *words)))}
    made = Tokenizer(models.WordLevel(vocab=known, unk_token=MARKS[1]))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if marks_ends:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", known["[CLS]"]), ("[SEP]", known["[SEP]"])],
        )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        eos_token=MARKS[0],
        pad_token=MARKS[0],
        unk_token=MARKS[1],
        chat_template=template,
    )


def bert_folder(folder, words, *, labels, is_multi=False, positions=64, seed=0):
    """A random classifier with these labels."""
    made = tokenizer(words, marks_ends=True)
    made.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    with torch_seeded(seed):
        config = transformers.BertConfig(
            vocab_size=len(made),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=positions,
            initializer_range=0.6,
            num_labels=len(labels),
            id2label=dict(enumerate(labels)),
            label2id={label: at for at, label in enumerate(labels)},
            problem_type="multi_label_classification"
            if is_multi
            else "single_label_classification",
        )
        model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return str(folder)


def llama_folder(folder, follows, *, template=CHAT, words=(), positions=256):
    """A Llama whose next token depends on the last alone, with these logits by word and next."""
    spoken = [*follows, *(after for own in follows.values() for after in own), *words]
    made = tokenizer(spoken, template=template)
    size = len(made) + len(made) % 2
    # Votes are drawn by a seed that has the weights in it, also those that never count.
    with torch_seeded(0):
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=len(made),
                hidden_size=size,
                intermediate_size=4,
                num_hidden_layers=1,
                num_attention_heads=1,
                max_position_embeddings=positions,
                tie_word_embeddings=False,
                bos_token_id=None,
                eos_token_id=0,
                pad_token_id=0,
            )
        )
    known = made.get_vocab()
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(len(made), size))
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.lm_head.weight.zero_()
        for word, own in follows.items():
            for after, logit in own.items():
                # The norm makes a unit vector as long as the root of its size.
                model.lm_head.weight[known[after], known[word]] = logit / size**0.5
    model.save_pretrained(folder)
    made.save_pretrained(folder)
    return str(folder)
