from each_row import each_row
from tiny_chats import OPENED, PROMPTS, chat_config, chat_system

from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.samplers.retelling import conversation_of


@each_row(
    "settings",
    [{}, {"template": OPENED}, {"format": "separator"}, {"attacker": {"format": "separator"}}],
)
def test_a_turn_has_read_what_was_said_before_it(settings):
    config = chat_config(attacker=settings.get("attacker"))
    own = {name: value for name, value in settings.items() if name != "attacker"}
    system = chat_system(config=config, **own)
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=1, tree_depth=3, num_responses=1),
        system=system,
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=2,
    )
    for graph in sampler.roll_out(PROMPTS[:1], iteration=0):
        (turns,) = graph.paths()
        for count, node in enumerate(turns):
            talk = conversation_of(graph.prompt, turns[:count], system)
            (context,) = system.player(count).contexts([talk], 450)

            assert node.context == context
