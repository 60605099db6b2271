"""Guards against what torch does behind a function's back: autocast, torch.func, second derivatives."""

from contextlib import nullcontext

from array_api_compat import is_torch_array

from .errors import AttnError


def full_precision(array):
    """A ``with`` block without torch's autocast, which would lower products below the type we promise."""
    if not is_torch_array(array) or array.device.type == "meta":
        return nullcontext()
    import torch

    kind = array.device.type
    if not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def is_transformed(*arrays):
    """Whether one of them belongs to ``torch.func`` or carries a forward-mode tangent."""
    tensors = [array for array in arrays if is_torch_array(array)]
    if not tensors:
        return False
    from torch._C._functorch import is_functorch_wrapped_tensor
    from torch.autograd.forward_ad import unpack_dual

    return any(
        is_functorch_wrapped_tensor(x) or unpack_dual(x).tangent is not None
        for x in tensors
    )


def refuse_transforms(name, *arrays):
    """Raise where vmap, grad or jvp of torch would get no answer, or a wrong one, from tiles and kernels."""
    if is_transformed(*arrays):
        raise AttnError(
            f"{name} got a tensor of torch.func (vmap, grad, jvp) or of a forward-mode derivative, wanted "
            f"an ordinary one: use attnlib.attention, which takes them all"
        )


def refuse_second_derivative(name):
    """To be called in a backward pass that nothing differentiates.

    torch's ``once_differentiable`` is not enough: where the loss makes the gradient of the output a constant,
    it returns a gradient without a graph, and a penalty on that gradient vanishes.
    """
    import torch

    if torch.is_grad_enabled():
        raise AttnError(
            f"{name} has no second derivative, and create_graph=True asks for one: "
            f"use attnlib.attention, which has"
        )


def above_zero(query, scale):
    """Query and scale with the same products, the scale above 0 in every type.

    Kernels multiply hidden scores by the scale, or take a maximum before they do: −∞ · 0 is NaN, and a
    negative factor turns the order round.
    """
    import torch

    if scale >= torch.finfo(torch.float32).tiny:
        return query, scale
    if -scale >= torch.finfo(torch.float32).tiny:
        return -query, -scale
    return query * scale, 1.0
