/** Tells when watched files have changed, whatever replaced them: an editor, `mv`, or the kubelet's symlink swap. */
import { createHash, type Hash } from 'node:crypto';
import { type FSWatcher, watch as watchDirectory } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { CancelTimer, Clock } from '../../core/clock.ts';
import { guardCallback, onEvent } from '../../core/safe-events.ts';
import { readChunks, withFile } from './regular-file.ts';

/** A watch that is under way. */
export interface Watch {
  /** Reports these files again at the next check, as if they had changed: reading them failed. A file that is not there has to appear first. */
  recheck(files: readonly string[]): void;
  close(): void;
}

/** Who is told. */
export interface WatchListener {
  /** The files whose content is another than before; a file that vanished has changed, too. */
  onChange(changed: readonly string[]): void;
  /** Events cannot be had for a directory; the poll goes on. */
  onTrouble(message: string): void;
}

/** Each file with what tells its content from another. */
export type Fingerprints = ReadonlyMap<string, string>;

const DEBOUNCE_MS = 250;
const POLL_MS = 30_000;
/** Not there, or not a regular file. */
const GONE = 'gone';
const UNKNOWN = 'unknown';
const MAX_HASHED_BYTES = 32 * 1024 * 1024;

/** What the files hold now, to be taken before they are read: what changes while they are read is then seen by the watch. */
export async function toFingerprints(files: readonly string[]): Promise<Fingerprints> {
  const prints = new Map<string, string>();
  for (const file of files) if (!prints.has(file)) prints.set(file, await toHash(file));
  return prints;
}

/**
 * Watches the files of `known`, and tells at once of those that hold something else by now. A path that ends with a slash is a directory, which has changed when any of its files has. Watches the directories, not the files: a
 * watch on a file follows its inode and misses every swap of `..data` after the first. Only a changed hash counts, and a slow poll finds what events missed.
 */
export async function watchFiles(known: Fingerprints, clock: Clock, listener: WatchListener): Promise<Watch> {
  const watch = new FileWatch(known, clock, listener);
  await watch.start();
  return watch;
}

class FileWatch implements Watch {
  readonly #clock: Clock;
  readonly #listener: WatchListener;
  readonly #hashes: Map<string, string>;
  readonly #watchers = new Map<string, FSWatcher>();
  #cancelPoll: CancelTimer = () => undefined;
  #cancelDebounce: CancelTimer | undefined;
  #isClosed = false;

  constructor(known: Fingerprints, clock: Clock, listener: WatchListener) {
    this.#hashes = new Map(known);
    this.#clock = clock;
    this.#listener = listener;
  }

  async start(): Promise<void> {
    this.#cancelPoll = this.#clock.every(POLL_MS, () => this.#look());
    await this.#look();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPoll();
    this.#cancelDebounce?.();
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
  }

  recheck(files: readonly string[]): void {
    for (const file of files) if ((this.#hashes.get(file) ?? GONE) !== GONE) this.#hashes.set(file, UNKNOWN);
  }

  #watchDirectories(): void {
    for (const directory of new Set([...this.#hashes.keys()].map((file) => (file.endsWith('/') ? file : dirname(file))))) {
      if (!this.#watchers.has(directory)) this.#watchDirectory(directory);
    }
  }

  #watchDirectory(directory: string): void {
    try {
      const watcher = watchDirectory(
        directory,
        { persistent: false },
        guardCallback(() => this.#onEvent()),
      );
      onEvent(watcher, 'error', (error) => this.#drop(directory, error.message));
      this.#watchers.set(directory, watcher);
    } catch (thrown) {
      this.#listener.onTrouble(
        `${directory} cannot be watched (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'}); it is looked at every ${POLL_MS / 1000} s`,
      );
    }
  }

  #drop(directory: string, message: string): void {
    this.#watchers.get(directory)?.close();
    this.#watchers.delete(directory);
    this.#listener.onTrouble(`the watch of ${directory} ended: ${message}`);
  }

  #onEvent(): void {
    // A swap is several events, and one look sees them all. Later events do not delay it: another file of the directory may change all the time.
    this.#cancelDebounce ??= this.#clock.after(DEBOUNCE_MS, () => {
      this.#cancelDebounce = undefined;
      return this.#look();
    });
  }

  async #look(): Promise<void> {
    // A directory that was removed and made again has lost its watch. Events first, then the look: a change in between is seen by one or the other.
    this.#rewatch();
    const changed: string[] = [];
    for (const file of this.#hashes.keys()) {
      const hash = await toHash(file);
      if (hash === this.#hashes.get(file)) continue;
      this.#hashes.set(file, hash);
      changed.push(file);
    }
    if (changed.length > 0 && !this.#isClosed) this.#listener.onChange(changed);
  }

  #rewatch(): void {
    if (this.#isClosed) return;
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
    this.#watchDirectories();
  }
}

async function toHash(path: string): Promise<string> {
  try {
    const hash = createHash('sha256');
    for (const file of path.endsWith('/') ? await listFiles(path) : [path]) await addFile(hash, file);
    return hash.digest('hex');
  } catch {
    return GONE;
  }
}

/** Of a file that is too large to be anything that is read, size and time are enough. */
async function addFile(hash: Hash, file: string): Promise<void> {
  hash.update(`${file}\n`);
  await withFile(file, async (handle) => {
    const { size, mtimeMs } = await handle.stat();
    if (size > MAX_HASHED_BYTES) hash.update(`${size} ${mtimeMs}`);
    else for await (const chunk of readChunks(handle)) hash.update(chunk);
  });
}

/** Without the kubelet's own directories, which begin with two dots. */
async function listFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  return names
    .filter((name) => !name.startsWith('..'))
    .sort()
    .map((name) => join(directory, name));
}
