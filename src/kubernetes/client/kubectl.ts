/** Outside a cluster, kubectl connects: it reads the kubeconfig, logs in, and passes on requests from a socket that only this user can open. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import type { ClusterAccess } from './transport.ts';

/** Options of the start. */
export interface KubectlOptions {
  /** The file. */
  readonly kubeconfig?: string | undefined;
  readonly context?: string | undefined;
  readonly clock: Clock;
  readonly io: {
    /** A credential plugin can ask for a password in a terminal. */
    readonly stdin: { readonly isTTY?: boolean };
    /** Receives questions that kubectl prints on its standard output. Its standard error is that of this process. */
    readonly stderr: (text: string) => void;
    readonly env: Readonly<Record<string, string | undefined>>;
  };
  /** Has `close` called when this process exits, also by a signal; returns how to cancel that. */
  readonly closeAtExit: (close: () => void) => () => void;
}

/** A kubectl that serves. */
export interface Kubectl {
  readonly access: ClusterAccess;
  /** The namespace of the context. */
  readonly namespace: string;
  /** The name of the context. */
  readonly name: string;
}

type Child = ChildProcessByStdio<null, Readable, null>;

/** People may have to log in. */
export const LOGIN_TIMEOUT: Milliseconds = 120_000;
const READ_TIMEOUT: Milliseconds = 30_000;
const MAX_OUTPUT_LENGTH = 65_536;
/** macOS has 104 bytes for the path of a socket with its final 0, Linux 108. */
const MAX_SOCKET_BYTES = 103;
const SERVING = 'Starting to serve on ';
const CONTEXT = '{.contexts[0].context.namespace}{"\\n"}{.current-context}';

/** Starts `kubectl proxy`, which ends with this process. Throws SidegateError; the reason of kubectl is on standard error. */
export async function startKubectl(options: KubectlOptions): Promise<Kubectl> {
  // For a file that does not exist, kubectl reports a missing current context.
  const files = [options.kubeconfig ?? options.io.env['KUBECONFIG']?.split(delimiter) ?? []].flat().filter((file) => file !== '');
  if (files.length > 0 && !files.some((file) => existsSync(file)))
    throw kubectlError(
      files.length === 1
        ? `the kubeconfig ${files[0]} does not exist`
        : `none of the files in KUBECONFIG exists: ${files.join(', ')}`,
    );
  // Also checks that there is a context: without one, kubectl would connect to localhost:8080.
  const [namespace, ...name] = (await readContext(options)).split('\n');
  const folder = createFolder();
  const socketPath = join(folder, 'api.sock');
  // Nobody else reaches the socket. The filters, made for browsers, would also reject paths of a namespace `pods`.
  const child = start(['proxy', `--unix-socket=${socketPath}`, '--disable-filter', '--append-server-path'], options, true);
  const close = (): void => {
    forget();
    child.kill('SIGKILL');
    rmSync(folder, { recursive: true, force: true });
  };
  const forget = options.closeAtExit(close);
  try {
    await readOutput(child, options, LOGIN_TIMEOUT, SERVING);
  } catch (thrown) {
    close();
    throw thrown;
  }
  // Does not keep a command from its end, which ends kubectl.
  child.unref();
  (child.stdout as Socket).unref();
  return { access: { kind: 'kubectl', socketPath, close }, namespace: namespace || 'default', name: name.join('\n') };
}

async function readContext(options: KubectlOptions): Promise<string> {
  const child = start(['config', 'view', '--minify', `--output=jsonpath=${CONTEXT}`], options, false);
  return readOutput(child, options, READ_TIMEOUT);
}

/** A new folder with the mode 0700. */
function createFolder(): string {
  const name = 'sidegate-';
  const isShort = Buffer.byteLength(join(tmpdir(), `${name}XXXXXX`, 'api.sock')) <= MAX_SOCKET_BYTES;
  const parent = isShort ? tmpdir() : '/tmp';
  try {
    return mkdtempSync(join(parent, name));
  } catch (thrown) {
    throw kubectlError(
      `cannot create a folder in ${parent} for the socket of kubectl (${(thrown as NodeJS.ErrnoException).code})`,
    );
  }
}

/** Standard input is a terminal or nothing: a pipe that stays open would keep a plugin waiting. */
function start(args: readonly string[], { kubeconfig, context, io }: KubectlOptions, mayAsk: boolean): Child {
  const chosen = [
    ...(kubeconfig === undefined ? [] : [`--kubeconfig=${kubeconfig}`]),
    ...(context === undefined ? [] : [`--context=${context}`]),
  ];
  const stdin = mayAsk && io.stdin.isTTY === true ? 'inherit' : 'ignore';
  return spawn('kubectl', [...args, ...chosen], { env: io.env, stdio: [stdin, 'pipe', 'inherit'] });
}

/** Resolves with the standard output at the end, or once it contains `until`. Otherwise ends the child and rejects. */
function readOutput(child: Child, { clock, io }: KubectlOptions, timeout: Milliseconds, until?: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const fail = (text: string): void => {
      cancel();
      child.kill('SIGKILL');
      reject(kubectlError(text));
    };
    const cancel = clock.after(timeout, () => fail(`kubectl did not respond within ${timeout / 1_000} s`));
    let text = '';
    onEvent(child.stdout.setEncoding('utf8'), 'data', (chunk: string) => {
      if (text.length < MAX_OUTPUT_LENGTH) text += chunk;
      if (until === undefined) return;
      if (!text.includes(until)) return io.stderr(chunk);
      cancel();
      resolve(text);
    });
    onceEvent(child, 'error', ({ code }: NodeJS.ErrnoException) => fail(toStartFailure(code)));
    onceEvent(child, 'close', (code, signal) => {
      if (code === 0 && until === undefined) {
        cancel();
        resolve(text);
      } else fail(`kubectl ended with ${signal ?? `the exit code ${code}`}; see its message above`);
    });
  });
}

function toStartFailure(code: string | undefined): string {
  const advice = 'install kubectl, or run this command in the cluster, in a pod with a service account';
  return code === 'ENOENT'
    ? `kubectl is not in PATH: ${advice}`
    : `kubectl cannot be started (${code ?? 'unknown reason'}): ${advice}`;
}

function kubectlError(text: string): SidegateError {
  return new SidegateError('user', 'kubectl', text);
}
