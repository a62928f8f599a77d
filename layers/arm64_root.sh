#!/bin/sh
# Make DIRECTORY a root with Debian's Python 3.13 for arm64 and qemu-user, in which the layers can run
# on another machine: arm64_root.sh DIRECTORY. MIRROR: where Debian's packages come from.
set -eu
directory=$1
for program in qemu-aarch64-static mmdebstrap; do
    command -v $program >/dev/null || {
        echo "strandline: $program is not here, which running the arm64 layers needs: apt install qemu-user-static mmdebstrap" >&2
        exit 1
    }
done
[ ! -x "$directory/usr/bin/python3.13" ] || exit 0
scratch="$directory.new"
rm -rf "$scratch" "$directory"
mmdebstrap --quiet --variant=extract --architectures=arm64 \
    --include=base-files,python3.13,libstdc++6,libgcc-s1 trixie "$scratch" \
    "${MIRROR:-http://deb.debian.org/debian}" >&2
cp "$(command -v qemu-aarch64-static)" "$scratch/qemu"
mkdir -p "$scratch/tmp" "$scratch/opt" "$scratch/var/task"
mv "$scratch" "$directory"
