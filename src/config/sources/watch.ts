/** Reports changes of watched files, however they were replaced: by an editor, `mv`, or the kubelet's symlink swap. */
import { createHash, type Hash } from 'node:crypto';
import { type FSWatcher, watch as watchDirectory } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { dirname, join, normalize } from 'node:path';
import type { CancelTimer, Clock } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { guardCallback, onEvent } from '../../core/safe-events.ts';
import { readChunks, withFile } from './bounded-read.ts';

/** An active watch. */
export interface Watch {
  /** Reports these files again at the next check, because reading them failed. A missing file has to appear first. */
  recheck(files: readonly string[]): void;
  close(): void;
}

/** Callbacks of a watch. */
interface WatchListener {
  /** Called with the files whose contents changed, including files that were removed. */
  onChange(changed: readonly string[]): void;
  /** Called if a directory cannot be watched for events. Polling continues. */
  onFailure(message: string): void;
}

/** Each file with a digest of its contents. */
export type Fingerprints = ReadonlyMap<string, string>;

const DEBOUNCE_MS = 250;
/** After a write to another file of a watched directory. Only one that a watched link leads to matters, and a log may be written all the time. */
const OTHER_FILE_MS = 5_000;
const POLL_MS = 30_000;
/** Missing, or not a regular file. */
const GONE = 'gone';
const UNKNOWN = 'unknown';
const MAX_HASHED_BYTES = 32 * 1024 * 1024;

/** The fingerprints of the files. Take them before reading the files, so that the watch notices a change during the read. */
export async function toFingerprints(files: readonly string[]): Promise<Fingerprints> {
  const prints = new Map<string, string>();
  for (const file of files) if (!prints.has(file)) prints.set(file, await toHash(file));
  return prints;
}

/**
 * Watches the files of `known`, and reports those that changed since then at once. A path that ends with a slash is a directory,
 * which changes when any of its files does. Watches the directories, not the files: a watch on a file follows its inode and misses
 * every swap of `..data` after the first. Only a changed hash counts. A slow poll finds changes that events missed.
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
  readonly #paths: ReadonlySet<string>;
  readonly #watchers = new Map<string, FSWatcher>();
  #cancelPoll: CancelTimer = () => undefined;
  #cancelDebounce: CancelTimer | undefined;
  #cancelOther: CancelTimer | undefined;
  #isClosed = false;

  constructor(known: Fingerprints, clock: Clock, listener: WatchListener) {
    this.#hashes = new Map(known);
    this.#paths = new Set([...known.keys()].map(normalize));
    this.#clock = clock;
    this.#listener = listener;
  }

  async start(): Promise<void> {
    this.#cancelPoll = this.#clock.every(POLL_MS, () => this.#check());
    await this.#check();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelPoll();
    this.#cancelTimers();
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
        guardCallback((event, name) => this.#onEvent(event === 'change' && this.#isOther(directory, name))),
      );
      onEvent(watcher, 'error', (error) => this.#drop(directory, error.message));
      this.#watchers.set(directory, watcher);
    } catch (thrown) {
      this.#listener.onFailure(
        `${directory} cannot be watched (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'}); it is polled every ${POLL_MS / 1000} s`,
      );
    }
  }

  #drop(directory: string, message: string): void {
    this.#watchers.get(directory)?.close();
    this.#watchers.delete(directory);
    this.#listener.onFailure(`the watch of ${directory} ended: ${message}`);
  }

  #onEvent(isOtherFile: boolean): void {
    // A swap causes several events; one check covers them all. Later events do not delay it: another file in the directory may change all the time.
    if (isOtherFile) this.#cancelOther ??= this.#clock.after(OTHER_FILE_MS, () => this.#check());
    else this.#cancelDebounce ??= this.#clock.after(DEBOUNCE_MS, () => this.#check());
  }

  /** Whether the name is neither that of a watched file nor in a directory that is watched as a whole. */
  #isOther(directory: string, name: string | null): boolean {
    return name !== null && !directory.endsWith('/') && !this.#paths.has(join(directory, name));
  }

  #cancelTimers(): void {
    this.#cancelDebounce?.();
    this.#cancelDebounce = undefined;
    this.#cancelOther?.();
    this.#cancelOther = undefined;
  }

  async #check(): Promise<void> {
    this.#cancelTimers();
    // A directory that was removed and recreated has lost its watch. Watch first, then check, so that a change in between is not missed.
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
    if (path.endsWith('/')) for (const file of await listFiles(path)) await addEntry(hash, file);
    else await addFile(hash, path);
    return hash.digest('hex');
  } catch {
    return GONE;
  }
}

/** An entry such as lost+found, or a file that cannot be read, must not hide a change of the others. */
async function addEntry(hash: Hash, file: string): Promise<void> {
  try {
    await addFile(hash, file);
  } catch (thrown) {
    hash.update((thrown as NodeJS.ErrnoException).code ?? toErrorText(thrown));
  }
}

/** For a file that is too large to be read by the gate, size and modification time are enough. */
async function addFile(hash: Hash, file: string): Promise<void> {
  hash.update(`${file}\n`);
  await withFile(file, async (handle) => {
    const { size, mtimeMs } = await handle.stat();
    if (size > MAX_HASHED_BYTES) hash.update(`${size} ${mtimeMs}`);
    else for await (const chunk of readChunks(handle)) hash.update(chunk);
  });
}

/** As they are read: the kubelet's directories start with two dots, the files of editors with one. */
async function listFiles(directory: string): Promise<string[]> {
  const names = await readdir(directory);
  return names
    .filter((name) => !name.startsWith('.'))
    .sort()
    .map((name) => join(directory, name));
}
