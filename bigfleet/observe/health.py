"""HTTP endpoints of a role: /healthz, /readyz and /metrics."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import generate_latest

from bigfleet.model.errors import Unavailable
from bigfleet.observe.metrics import REGISTRY
from bigfleet.observe.ports import require_free_port

NotReadyReason = Callable[[], str]


async def serve(host: str, port: int, not_ready: NotReadyReason) -> web.AppRunner:
    """Serve until the returned runner's `cleanup`. `not_ready` returns why not, or "" when ready.

    Unavailable if the address is in use.
    """

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        reason = not_ready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def metrics(request: web.Request) -> web.Response:
        """All metrics, or only those that are asked for by `name[]`, which is cheaper to poll."""
        names = request.query.getall("name[]", [])
        chosen = REGISTRY.restricted_registry(names) if names else REGISTRY
        return web.Response(body=generate_latest(chosen), content_type="text/plain")

    require_free_port("serve health", host, port)
    app = web.Application()
    app.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_port=True).start()
    except OSError as error:
        raise Unavailable(f"cannot serve health on {host}:{port}: {error}") from None
    return runner
