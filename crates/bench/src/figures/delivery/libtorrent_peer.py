"""One libtorrent client: libtorrent_peer.py seed|get PORT TORRENT FOLDER ADDRESS...

`seed` has the whole file in FOLDER and stays; `get` ends when the file is whole and on disk. All addresses are told to all, so that
there is no tracker. Nothing else differs from libtorrent's defaults but that peers are not found by other ways, and that
nobody is choked: all wait for the same object.
"""

import sys
import time

import libtorrent

verb, port, torrent, folder, *addresses = sys.argv[1:]
session = libtorrent.session(
    {
        "listen_interfaces": f"0.0.0.0:{port}",
        "enable_dht": False,
        "enable_lsd": False,
        "enable_upnp": False,
        "enable_natpmp": False,
        "unchoke_slots_limit": -1,
        "alert_mask": libtorrent.alert.category_t.storage_notification,
    }
)
wanted = libtorrent.add_torrent_params()
wanted.ti = libtorrent.torrent_info(torrent)
wanted.save_path = folder
wanted.flags &= ~(libtorrent.torrent_flags.auto_managed | libtorrent.torrent_flags.paused)
if verb == "seed":
    wanted.flags |= libtorrent.torrent_flags.seed_mode
transfer = session.add_torrent(wanted)
if verb == "seed":
    while True:
        time.sleep(60)
for address in addresses:
    transfer.connect_peer((address, int(port)))
while not transfer.status().is_seeding:
    time.sleep(0.01)
# What is complete may still be in memory.
transfer.flush_cache()
patience = time.monotonic() + 5
while time.monotonic() < patience:
    if any(isinstance(alert, libtorrent.cache_flushed_alert) for alert in session.pop_alerts()):
        break
    time.sleep(0.005)
