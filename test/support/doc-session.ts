/**
 * Runs the commands of a page as a reader would: one after the other, with the folder and the exported variables of the terminal. A command that
 * keeps running takes its terminal, so the reader goes on in a new one, in the first folder.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import type { Block } from './doc-blocks.ts';
import { LAUNCHER } from './process.ts';

/** How a block ended. */
export interface BlockResult {
  readonly code: number | null;
  /** Standard output and standard error, as a terminal shows them. */
  readonly output: string;
}

/** Ports that pages use. Each session replaces them by free ones, so that pages can run side by side. */
const PAGE_PORTS = /(?<![\d.])(?:3000|6379|6380|8080|8443|8482|9090|9091)(?![\d.])/g;

const MODULES = join(import.meta.dirname, '..', '..', 'node_modules');

/** What a reader has beside the `sidegate` command. */
export interface DocSessionOptions {
  /** Shell scripts of other commands, by name. */
  readonly commands?: Readonly<Record<string, string>>;
}

/** A reader's shell. */
export class DocSession {
  readonly folder = mkdtempSync(join(tmpdir(), 'sidegate-page-'));
  readonly #tools = mkdtempSync(join(tmpdir(), 'sidegate-tools-'));
  readonly #ports = new Map<string, string>();
  readonly #background: ChildProcess[] = [];

  constructor({ commands }: DocSessionOptions = {}) {
    const scripts = { sidegate: `exec '${process.execPath}' '${LAUNCHER}' "$@"`, ...commands };
    for (const [name, script] of Object.entries(scripts))
      writeFileSync(join(this.#tools, name), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    this.#openTerminal();
  }

  /** Finds a free port for each port that the texts name. */
  async prepare(texts: readonly string[]): Promise<void> {
    const named = new Set(texts.flatMap((text) => text.match(PAGE_PORTS) ?? []));
    for (const port of named) this.#ports.set(port, await findFreePort([...this.#ports.values()]));
  }

  /** The block's text on this session's ports. */
  localize(text: string): string {
    return text.replaceAll(PAGE_PORTS, (port) => this.#ports.get(port) ?? port);
  }

  /** Writes the block to the file that it names. */
  write({ file = '', text }: Pick<Block, 'file' | 'text'>): void {
    const path = join(this.folder, file);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, this.localize(text));
  }

  /** Runs the block to its end. */
  run({ text }: Pick<Block, 'text'>): Promise<BlockResult> {
    const child = this.#spawn(text, `\nexport -p > '${this.#tools}/env'\npwd > '${this.#tools}/cwd'\n`);
    const output = collect(child);
    return new Promise((done) => child.once('close', (code) => done({ code, output: output() })));
  }

  /** Starts the block, and resolves once it has printed the text; rejects if it ends before. */
  start({ text }: Pick<Block, 'text'>, until: string): Promise<BlockResult> {
    const child = this.#spawn(text, '');
    this.#background.push(child);
    this.#openTerminal();
    const output = collect(child);
    return new Promise((done, fail) => {
      const check = (): void => {
        if (output().includes(until)) done({ code: null, output: output() });
      };
      child.stdout?.on('data', check);
      child.stderr?.on('data', check);
      child.once('close', (code) => fail(new Error(`ended with ${code} before it printed "${until}": ${output()}`)));
    });
  }

  /** Ends what runs in the background, and removes the folders. */
  async close(): Promise<void> {
    for (const child of this.#background) {
      const ended = new Promise((done) => child.once('close', done));
      if (child.pid === undefined || child.exitCode !== null) continue;
      // The whole group: the shell and what it started.
      process.kill(-child.pid, 'SIGKILL');
      await ended;
    }
    rmSync(this.folder, { recursive: true, force: true });
    rmSync(this.#tools, { recursive: true, force: true });
  }

  #openTerminal(): void {
    writeFileSync(join(this.#tools, 'env'), '');
    writeFileSync(join(this.#tools, 'cwd'), this.folder);
  }

  #spawn(text: string, epilogue: string): ChildProcess {
    const cwd = readFileSync(join(this.#tools, 'cwd'), 'utf8').trimEnd();
    // Read here, because a command that keeps running leaves its terminal to itself before its shell has started.
    const exported = readFileSync(join(this.#tools, 'env'), 'utf8');
    const script = `${exported}\nset -eu -o pipefail\n${this.localize(text)}${epilogue}`;
    const path = [this.#tools, dirname(process.execPath), process.env['PATH'] ?? ''].join(delimiter);
    return spawn('bash', ['-c', script], {
      cwd,
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      // Packages that a page installs are those of this project. Python writes each line at once, as to a terminal.
      env: { PATH: path, HOME: this.folder, LANG: 'C.UTF-8', NODE_PATH: MODULES, PYTHONUNBUFFERED: '1' },
    });
  }
}

function collect(child: ChildProcess): () => string {
  let output = '';
  const take = (chunk: string): void => {
    output += chunk;
  };
  child.stdout?.setEncoding('utf8').on('data', take);
  child.stderr?.setEncoding('utf8').on('data', take);
  return () => output;
}

/** A port below those that the kernel gives to others who listen on port 0. */
async function findFreePort(taken: readonly string[]): Promise<string> {
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * 10_000);
    if (!taken.includes(String(port)) && (await isFree(port))) return String(port);
  }
}

function isFree(port: number): Promise<boolean> {
  const server = createServer();
  return new Promise((done) => {
    server.once('error', () => done(false));
    server.listen(port, '127.0.0.1', () => server.close(() => done(true)));
  });
}
