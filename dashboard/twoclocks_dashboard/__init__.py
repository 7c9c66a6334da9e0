"""The browser dashboard: pages over what the store holds, so that they can never disagree with the API.

`router(store, clock)` is all that the service needs. Nothing here writes, and nothing is asked of another
host.
"""

from twoclocks_dashboard.pages import router

__all__ = ["router"]
