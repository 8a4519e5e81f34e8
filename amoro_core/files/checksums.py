"""CRC-32 checksums, which pages of Parquet have, and blobs of deletion vectors."""

__all__ = ["crc32"]

try:
    from zlib_ng.zlib_ng import crc32  # by vector instructions, twelve times as fast
except ImportError:  # there is no build of it for every machine
    from zlib import crc32
