"""The kernels that every check applies to: one entry each, ours and anyone's.

A kernel is a function whose parameters are among the keywords of `Inputs` (q, k_cache, v_cache,
block_table, seq_lens, cu_seqlens_q, max_query_len), of the features it supports (causal, sliding_window,
...) and, if it likes, `out` and `return_lse`. It returns out, or (out, lse). What it does not take, it
does not support; a case that asks for it is UNSUPPORTED with that reason.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pagegate.errors import UsageError

from .features import active_features
from .spec import AttentionSpec

if TYPE_CHECKING:
    from .inputs import Inputs

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def has_triton() -> bool:
    """Whether Triton is installed: there are platforms without it."""
    try:
        return importlib.util.find_spec("triton") is not None
    except ModuleNotFoundError:
        return False


def _anything(spec: AttentionSpec) -> str | None:
    return None


@dataclass(frozen=True)
class Kernel:
    """One kernel under test.

    load: imports and returns the function, so that listing kernels imports nothing.
    supports: a reason why a spec is not supported, or None; besides what the parameters say.
    plan: keyword arguments that hold the launch path fixed (for us, config=...), from the inputs; the
    relations that change a batch's shape need it, since a launch may split another batch otherwise.
    prepare: for kernels of other conventions: takes inputs, converts layouts, and returns the function to
    call; what it does is not timed. replayable: whether a captured graph stays right when lengths and
    tables change in place. peer: for comparison, so only used when it is named. triton: whether it needs it.
    """

    name: str
    summary: str
    load: Callable[[], Callable[..., Any]] = field(repr=False)
    supports: Callable[[AttentionSpec], str | None] = field(default=_anything, repr=False)
    plan: Callable[[Inputs], dict[str, Any]] | None = field(default=None, repr=False)
    prepare: Callable[[Inputs], Callable[..., Any]] | None = field(default=None, repr=False)
    replayable: bool = True
    peer: bool = False
    triton: bool = False

    def parameters(self) -> frozenset[str] | None:
        """Names of the parameters it takes; None if it takes any."""
        return _parameters(self.load())

    def takes(self, keyword: str) -> bool:
        names = self.parameters()
        return names is None or keyword in names

    def unsupported_reason(self, spec: AttentionSpec) -> str | None:
        """Why this kernel cannot run a spec, or None."""
        for feature in active_features(spec):
            missing = [word for word in feature.keywords if not self.takes(word)]
            if missing:
                return f"takes no {' or '.join(missing)} ({feature.name})"
        return self.supports(spec)

    def bind(self, inputs: Inputs, **options: Any) -> Callable[[], Any]:
        """A launch on inputs, ready to be called (and timed) again and again; `options` (out, return_lse,
        a plan) that the kernel does not take are left out."""
        arguments = options if self.prepare else inputs.keywords() | options
        function = self.prepare(inputs) if self.prepare else self.load()
        return partial(function, **{name: value for name, value in arguments.items() if self.takes(name)})

    def call(self, inputs: Inputs, **options: Any) -> Any:
        """Run it once on inputs; see `bind`."""
        return self.bind(inputs, **options)()


@cache
def _parameters(function: Callable[..., Any]) -> frozenset[str] | None:
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters)


def _ours(rung: str) -> Callable[[], Callable[..., Any]]:
    @cache
    def load() -> Callable[..., Any]:
        from paged_kernels import paged_attention

        def call(q: Any, k_cache: Any, v_cache: Any, config: Any = None, **arguments: Any) -> Any:
            if config is None:
                config = _our_config(rung, q, k_cache, arguments)
            return paged_attention(q, k_cache, v_cache, config=config, **arguments)

        call.__signature__ = inspect.signature(paged_attention)  # type: ignore[attr-defined]
        return call

    return load


def _our_config(rung: Any, q: Any, k_cache: Any, arguments: dict[str, Any]) -> Any:
    from paged_kernels import plan

    table, longest = arguments["block_table"], arguments["max_query_len"]
    return plan(q, k_cache, table, longest, arguments.get("sliding_window"), rung)


def _our_plan(rung: str) -> Callable[[Inputs], dict[str, Any]]:
    def plan(inputs: Inputs) -> dict[str, Any]:
        arguments = inputs.keywords()
        return {"config": _our_config(rung, arguments["q"], arguments["k_cache"], arguments)}

    return plan


def _rung(name: str, summary: str, peer: bool = False) -> Kernel:
    """A step of our ladder; those between the first and the last are there to be compared."""
    return Kernel(name, summary, _ours(name), plan=_our_plan(name), peer=peer, triton=True)


def _peer(name: str, summary: str) -> Kernel:
    """A module of `cases.peers`, imported when it is needed."""

    def module() -> Any:
        return importlib.import_module(f"pagegate.cases.peers.{name}")

    return Kernel(
        name,
        summary,
        lambda: module().parameters,
        supports=lambda spec: module().unsupported(spec),
        prepare=lambda inputs: module().prepare(inputs),
        replayable=False,
        peer=True,
    )


_LOADED: set[str] = set()  # plugins: several commands may run in one process
_KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _rung("naive", "one program per query token and head"),
        _rung("qblock", "query heads of a KV head packed into the rows of a product", peer=True),
        _rung("split", "qblock, and decodes in sixteen parallel segments", peer=True),
        _rung("tiled", "split, with tiles free of the page size", peer=True),
        _rung("unified", "Q-blocks, split-KV, any mix in one launch, planned by shape"),
        _peer("torch_sdpa", "torch's scaled_dot_product_attention after gathering the pages"),
        _peer("flash_attn_3", "FlashAttention-3; over gathered keys where its build has no paged caches"),
        _peer("flashinfer", "FlashInfer's paged wrappers, planned outside the call"),
        _peer("vllm_triton", "vLLM's Triton kernel, launched as its backend does"),
        _peer("cudnn", "cuDNN's attention graph with page tables"),
    )
}


def kernels_root() -> Path:
    """The folder that holds the `paged_kernels` that runs here."""
    found = importlib.util.find_spec("paged_kernels")
    if found is None or found.origin is None:
        raise UsageError("paged_kernels: required on the path, found no such package; install the project")
    return Path(found.origin).parents[1]


@cache
def cache_writer() -> Callable[..., None]:
    """`write_kv_cache` of the `paged_kernels` that runs here."""
    from paged_kernels import write_kv_cache

    return write_kv_cache


def register(
    name: str,
    *,
    supports: Callable[[AttentionSpec], str | None] = _anything,
    plan: Callable[[Inputs], dict[str, Any]] | None = None,
) -> Callable[[Function], Function]:
    """Decorator: put a kernel into the registry. Raises UsageError for a name that is taken."""

    def add(function: Function) -> Function:
        if name in _KERNELS:
            raise UsageError(f"register: required a new kernel name, found {name!r}, which is registered")
        summary = (inspect.getdoc(function) or "").partition("\n")[0]
        _KERNELS[name] = Kernel(name, summary, lambda: function, supports, plan)
        return function

    return add


def kernels() -> dict[str, Kernel]:
    """All kernels by name, in order of registration."""
    return dict(_KERNELS)


def find_kernel(name: str) -> Kernel:
    """Raises UsageError for an unknown name."""
    if name not in _KERNELS:
        raise UsageError(f"kernel: required one of {', '.join(_KERNELS)}; found {name!r}")
    return _KERNELS[name]


def load_plugin(plugin: str) -> None:
    """Import a Python file or module that registers kernels. Raises UsageError if that fails."""
    path, before = Path(plugin), len(_KERNELS)
    identity = str(path.resolve()) if path.suffix == ".py" else plugin
    if identity in _LOADED:
        return
    try:
        if path.suffix == ".py":
            if not path.is_file():
                raise UsageError(f"plugin: required a Python file or module, found no file {plugin}")
            module_name = f"pagegate_plugin_{path.stem}"
            spec = importlib.util.spec_from_file_location(module_name, path.resolve())
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        else:
            importlib.import_module(plugin)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"plugin {plugin}: required a module that imports, found {type(error).__name__}: {error}"
        ) from error
    if len(_KERNELS) == before:
        raise UsageError(f"plugin {plugin}: required a module that registers a kernel, found none in it")
    _LOADED.add(identity)
