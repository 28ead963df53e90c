"""One step of a PyTorch model, written for `trireme verify A.toml --reference FOLDER`.

    with record(model, "reference/fp32") as step:
        step.loss = model(tokens, labels=labels).loss
        step.loss.backward()

and the same in fp64 into reference/fp64, inside `exact()`, in which the model is made too. The outputs of all
modules and their gradients are kept by module path, the parameters' gradients by name, whole under FSDP2.
"""

import contextlib
import json
import os
import types

import torch
from torch.overrides import TorchFunctionMode


def _whole(tensor):
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _first_tensor(output):
    items = output.values() if isinstance(output, dict) else output if isinstance(output, (tuple, list)) else [output]
    return next((item for item in items if isinstance(item, torch.Tensor) and item.is_floating_point()), None)


class exact(TorchFunctionMode):
    """Inside it, whatever a model casts to fp32 or makes in fp32 is fp64, as for rotary angles and norms."""

    def __enter__(self):
        self.default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error):
        torch.set_default_dtype(self.default)
        return super().__exit__(*error)

    def __torch_function__(self, function, classes, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(widen, args), **{name: widen(value) for name, value in (kwargs or {}).items()})


def _in_stored_form(model, gradients):
    """Under the names and in the shapes of the model's files: transformers stacks experts, for one."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # none, or an older one, whose modules have the names of the files
        return gradients
    return revert_weight_conversion(model, gradients)


@contextlib.contextmanager
def record(model, folder):
    """Records the forward and backward passes of its body as one step; the body sets `loss` of what it gets."""
    from safetensors.torch import save_file
    step, kept, hooks = types.SimpleNamespace(loss=None), {}, []

    def keep(name, tensor):
        kept.setdefault(name, []).append(_whole(tensor).cpu().clone())

    def listen(path):
        def on_output(_module, _inputs, output):
            tensor = _first_tensor(output)
            if tensor is None:
                return
            keep(path, tensor)
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: keep(path + "@gradient", gradient))
        return on_output

    for path, module in model.named_modules():
        if path:
            hooks.append(module.register_forward_hook(listen(path)))
    try:
        yield step
    finally:
        for hook in hooks:
            hook.remove()
    gradients = {name: _whole(parameter.grad).cpu().clone() for name, parameter in model.named_parameters()
                 if parameter.grad is not None}
    if step.loss is None or not gradients:
        raise ValueError("no step was recorded: call backward() and set the step's loss within record()")
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_rank() > 0:
        return  # every rank has gathered the whole tensors, and one writes them
    os.makedirs(os.path.join(folder, "gradients"), exist_ok=True)
    stored = gradients
    if hasattr(model, "config") and hasattr(model.config, "to_json_string"):  # transformers'
        model.config.save_pretrained(os.path.join(folder, "gradients"))
        stored = _in_stored_form(model, dict(gradients))
    save_file({name: (torch.cat if parts[0].dim() else torch.stack)(parts).contiguous() for name, parts in kept.items()},
              os.path.join(folder, "activations.safetensors"))
    save_file({name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in stored.items()},
              os.path.join(folder, "gradients", "model.safetensors"), metadata={"format": "pt"})
    norm = torch.sqrt(sum(tensor.double().square().sum() for tensor in gradients.values()))
    with open(os.path.join(folder, "step.json"), "w") as file:
        json.dump({"loss": float(_whole(step.loss)), "grad_norm": float(norm)}, file)
