"""Encrypted arrays in shared memory: AES-256-GCM, written straight into the slot.

Each connection has its own key, which the server generates and passes over the unix socket once the peer's
credentials are checked. A nonce is never reused: it contains the direction, the number of the call, and that
of the array in the message. Changing a byte or moving an array makes the call fail.
"""

from __future__ import annotations

from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flagscale_perf.rpc.errors import InvalidMessage
from flagscale_perf.rpc.transport.arena import Slot

KEY_BYTES = 32
TAG_BYTES = 16
NONCE = Struct("<BBHQ")
PLACE = Struct("<QQ")
REQUEST, REPLY = 1, 2
NOTHING = memoryview(b"")


class SealedSlot:
    """A slot whose memory holds ciphertext only. For one direction of one connection."""

    plain = False

    def __init__(self, slot: Slot, key: bytes, direction: int) -> None:
        self._slot = slot
        self._cipher = AESGCM(key)
        self._direction = direction
        self._call = 0
        self._count = 0
        self._plain = NOTHING

    def begin(self, call: int) -> None:
        """Prepares for the arrays of this call."""
        self._slot.begin(call)
        self._call = call
        self._count = 0

    def lend(self, size: int) -> memoryview | None:
        """None: plaintext is never in shared memory."""
        return None

    def find(self, data: memoryview) -> int | None:
        """None, for the same reason."""
        return None

    def store(self, data: memoryview) -> int | None:
        """Encrypts an array into the slot and returns its offset; None if it does not fit."""
        size = len(data)
        room = self._slot.reserve(size + TAG_BYTES)
        if room is None:
            return None
        offset, view = room
        self._cipher.encrypt_into(self._nonce(), data, PLACE.pack(offset, size), view)
        return offset

    def put(self, offset: int, data: memoryview) -> None:
        """Never called, as the slot is not plain."""
        raise NotImplementedError

    def view(self, offset: int, size: int) -> memoryview:
        """Decrypts into memory that the next message reuses. Raises `InvalidMessage` if it is not what the
        other side wrote.
        """
        sealed = self._slot.view(offset, size + TAG_BYTES)
        if not self._plain:  # as large as the slot; the system allocates only what is used
            self._plain = memoryview(bytearray(self._slot.size))
        plain = self._plain[offset : offset + size]
        try:
            self._cipher.decrypt_into(self._nonce(), sealed, PLACE.pack(offset, size), plain)
        except InvalidTag:
            raise InvalidMessage("an encrypted array that was changed on its way") from None
        return plain.toreadonly()

    def _nonce(self) -> bytes:
        self._count += 1
        return NONCE.pack(self._direction, 0, self._count, self._call)

    def release(self) -> None:
        """Unmaps the memory."""
        self._slot.release()
