"""Execute notebooks and executable pages side by side, in kernels that have already imported torch.

Each kernel is forked from one process that has imported what most pages import, since a page's
imports take longer than most of its cells. jupyter-cache's own parallel executor starts a fresh
kernel for each page, and hands out pages in groups, in which short chapters wait for long ones.

Usage: python warmkernels.py CACHE TIMEOUT PATH ... (the longest first)
"""

import multiprocessing
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import EntryPoint
from types import SimpleNamespace

from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

IMPORTED = [
    "ipykernel.kernelapp",
    "timm",
    "torchvision",
    "matplotlib.pyplot",
    "companion.claims.registry",
    "companion.display",
    "companion.explorer.widget",
    "companion.training.quick",
]
FORKS = multiprocessing.get_context("forkserver")


class ForkedKernelProvisioner(LocalProvisioner):
    """Start a kernel as a fork of the process that has imported `IMPORTED`."""

    async def launch_kernel(self, cmd, **kwargs):
        process = FORKS.Process(target=run_kernel, args=(cmd, kwargs["cwd"], kwargs["env"]))
        process.start()

        def wait():
            process.join()
            return process.exitcode

        # what `LocalProvisioner` uses of a `subprocess.Popen`
        self.process = SimpleNamespace(
            poll=lambda: process.exitcode,
            wait=wait,
            send_signal=partial(os.kill, process.pid),
            **dict.fromkeys(("stdin", "stdout", "stderr")),
        )
        self.pid = self.pgid = process.pid
        self.cwd = kwargs["cwd"]
        return self.connection_info


def run_kernel(cmd, cwd, env):
    """Run the kernel that `cmd`, such as `python -m ipykernel_launcher -f FILE`, would start."""
    from ipykernel.kernelapp import IPKernelApp

    os.setsid()
    os.chdir(cwd)
    os.environ.update(env)
    # It ends when the process from which it was forked does.
    app = IPKernelApp.instance(parent_handle=os.getppid())
    app.initialize(cmd[cmd.index("-f") :])
    app.start()


def execute(cache_path, timeout, path):
    """Execute one notebook, unless it is in the cache, and add it to the cache."""
    from jupyter_cache import get_cache
    from jupyter_cache.executors import load_executor

    executor = load_executor("local-serial", get_cache(cache_path))
    executor.run_and_cache(filter_uris=[path], timeout=timeout)


def main(cache_path, timeout, *paths):
    name = "forked"
    KernelProvisionerFactory.instance(default_provisioner_name=name).provisioners[name] = (
        EntryPoint(name, f"{__name__}:ForkedKernelProvisioner", KernelProvisionerFactory.GROUP_NAME)
    )
    # matplotlib reads this when it is imported, before there is a kernel that would set it
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    FORKS.set_forkserver_preload(IMPORTED)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(partial(execute, cache_path, int(timeout)), paths))


if __name__ == "__main__":
    main(*sys.argv[1:])
