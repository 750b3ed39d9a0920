/** Checks the file of the queue and the file system that it is on, before SQLite opens it. */
import { chmodSync, closeSync, existsSync, openSync, readFileSync, readSync, statfsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { SidegateError, toErrorText } from '../../../core/errors.ts';

const OWNER_ONLY = 0o600;
const LOST_WITH_POD = 'is lost when the pod ends, or the machine restarts';
const LOST_WITH_CONTAINER = 'is lost with the container';
const REMOTE = 'does not lock and sync files as reliably as a local disk';

/** Types of file systems (statfs(2)) on which accepted events can be lost, with why. */
const UNSAFE_FILE_SYSTEMS: ReadonlyMap<number, readonly [string, string]> = new Map([
  [0x01021994, ['tmpfs', LOST_WITH_POD]],
  [0x858458f6, ['ramfs', LOST_WITH_POD]],
  [0x794c7630, ['overlay', LOST_WITH_CONTAINER]],
  [0x61756673, ['aufs', LOST_WITH_CONTAINER]],
  [0x00006969, ['NFS', REMOTE]],
  [0x0000517b, ['SMB', REMOTE]],
  [0xff534d42, ['SMB', REMOTE]],
  [0xfe534d42, ['SMB', REMOTE]],
  [0x01021997, ['9p', REMOTE]],
  [0x65735546, ['FUSE', REMOTE]],
  [0x00c36400, ['CephFS', REMOTE]],
  [0x5346414f, ['AFS', REMOTE]],
  [0x73757245, ['Coda', REMOTE]],
  [0x0bd00bd0, ['Lustre', REMOTE]],
  [0x19830326, ['BeeGFS', REMOTE]],
  [0x47504653, ['GPFS', REMOTE]],
  [0x786f4256, ['vboxsf', REMOTE]],
]);

/** Names the file that the path leads to; no other one has this name while it is open. Empty if there is none. */
export function toFileName(path: string): string {
  const { dev, ino } = statSync(path, { throwIfNoEntry: false }) ?? {};
  return ino === undefined ? '' : `${dev}:${ino}`;
}

/** Why a file system of this type (`f_type` of statfs) cannot be trusted with events; undefined if it can. */
export function findFileSystemRisk(type: number): string | undefined {
  // Some architectures sign-extend the 32 bits.
  const [name, why] = UNSAFE_FILE_SYSTEMS.get(type >>> 0) ?? [];
  return name === undefined ? undefined : `a file on ${name} ${why}`;
}

/** Creates the file if it does not exist, readable by its owner only. Throws a SidegateError of kind `user` if that fails, or, without `allowVolatile`, if its file system can lose events. */
export function prepareQueueFile(path: string, allowVolatile: boolean): string[] {
  const risk = findFileSystemRisk(attempt(path, () => statfsSync(dirname(path)).type));
  if (risk !== undefined && !allowVolatile) {
    const text = `cannot keep the queue in ${path}: ${risk}. Give provider.queue.sqlite.path a file on a persistent local volume, set provider.queue.postgres, or set provider.queue.sqlite.allowVolatile: true to risk accepted events`;
    throw new SidegateError('user', 'queue_volatile', text);
  }
  attempt(path, () => {
    // Never opens a file that exists: to close it again would release the locks that another queue of this process has on it (fcntl(2)).
    if (!existsSync(path)) closeSync(openSync(path, 'wx', OWNER_ONLY));
    if (!statSync(path).isFile()) throw new Error('it is not a file');
    // The bodies of events are confidential, and the write-ahead log gets the mode of the file.
    if ((statSync(path).mode & 0o077) !== 0) chmodSync(path, OWNER_ONLY);
  });
  return risk === undefined ? [] : [`accepted events can be lost: the queue is in ${path}, and ${risk}`];
}

function attempt<T>(path: string, action: () => T): T {
  try {
    return action();
  } catch (thrown) {
    const text = `cannot open the queue ${path}: ${toErrorText(thrown)}; create the folder, or mount a volume there, and let this user write to it`;
    throw new SidegateError('user', 'queue_unusable', text, { cause: thrown });
  }
}

/**
 * Counts the transactions in the write-ahead log that follow the frames that SQLite read, up to the first one whose checksum is wrong (sqlite.org, "Database
 * File Format", section 4). A crash leaves at most one, the last: each is synced before the next one begins. More mean that the log is damaged.
 */
export function countUnreadCommits(path: string, readFrames: number): number {
  const file = openSync(`${path}-wal`, 'r');
  try {
    const [head, frame] = [Buffer.alloc(32), Buffer.alloc(24)];
    readSync(file, head, 0, head.length, 0);
    const frameSize = frame.length + head.readUInt32BE(8);
    let [commits, at] = [0, head.length + readFrames * frameSize];
    for (; readSync(file, frame, 0, frame.length, at) === frame.length; at += frameSize)
      // The last frame of a transaction has the size of the database. Frames from before the last reset of the log have other salts.
      if (frame.readUInt32BE(4) > 0 && frame.compare(head, 16, 24, 8, 16) === 0) commits++;
    return commits;
  } finally {
    closeSync(file);
  }
}

/** Says which process has the file open, for the second one that wants it. */
export function describeHolder(path: string): string {
  const pid = findHolder(path);
  const who = pid === undefined ? 'another process, perhaps in another container' : `process ${pid}`;
  return `the queue ${path} is in use by ${who}; only one process can use it. Stop that one, give this one another provider.queue.sqlite.path, or set provider.queue.postgres for several replicas`;
}

/** Linux lists who has locked a file: `1: POSIX  ADVISORY  WRITE 4711 08:01:1234 1073741824 1073742335`. */
function findHolder(path: string): number | undefined {
  try {
    const { ino } = statSync(path);
    const lines = readFileSync('/proc/locks', 'latin1').split('\n');
    const fields = lines.map((line) => line.trim().split(/ +/)).find((each) => each[5]?.split(':')[2] === String(ino));
    const pid = Number(fields?.[4]);
    return Number.isInteger(pid) && pid > 0 ? pid : undefined;
  } catch {
    return undefined;
  }
}
