import pytest
import torch

from astra_core.engine.head import label_logprobs

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_give_the_logprobs_and_gradients_of_the_cpu(dtype):
    numbers = torch.Generator().manual_seed(0)
    # More columns than a program holds at a time, and no multiple of them.
    head = torch.nn.Linear(16, 9001, bias=False)
    states = torch.randn(7, 16, generator=numbers)
    labels, outer = torch.randint(9001, (7,), generator=numbers), torch.arange(-3.0, 4.0)
    barred = torch.tensor([5])
    found = []
    for device in ("cpu", "cuda"):
        own = torch.nn.Linear(16, 9001, bias=False, device=device)
        own.load_state_dict(head.state_dict())
        given = states.detach().to(device, dtype).requires_grad_()
        chosen = label_logprobs(own, given, labels.to(device), route="plain", barred=barred)
        (chosen * outer.to(device)).sum().backward()
        found.append([chosen.detach().cpu(), given.grad.cpu(), own.weight.grad.cpu()])

    tolerance = (
        {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    )
    torch.testing.assert_close(*found, **tolerance)
