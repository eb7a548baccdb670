"""One thread: two cores are shared, and a second thread that waits turns seconds into minutes."""

import torch

torch.set_num_threads(1)
