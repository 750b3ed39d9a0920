/** Runs a kubeconfig's credential plugin (client.authentication.k8s.io), as EKS, GKE and AKS have them, and remembers what it gave. */
import { spawn } from 'node:child_process';
import * as z from 'zod';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import { Secret } from '../../core/secret.ts';
import type { Credentials } from './access.ts';

/** A plugin as the kubeconfig names it. */
export const ExecSchema = z.object({
  command: z.string().min(1),
  args: z.array(z.string()).nullish(),
  env: z.array(z.object({ name: z.string().min(1), value: z.string() })).nullish(),
  apiVersion: z.string(),
  installHint: z.string().nullish(),
  provideClusterInfo: z.boolean().nullish(),
  interactiveMode: z.string().nullish(),
});

/** The context that a plugin runs in. */
export interface ExecContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** Where the kubeconfig lies, from which relative commands count. */
  readonly folder: string;
  /** Told to the plugin where it asks for it. */
  readonly cluster: Readonly<Record<string, unknown>>;
  /** What the plugin says on its standard error: a login page to open, or why it failed. */
  readonly tell: (text: string) => void;
}

type ExecSpec = z.output<typeof ExecSchema>;

interface Remembered {
  readonly parts: { readonly [Part in keyof Credentials]?: Secret | undefined };
  readonly until: EpochMilliseconds;
}

const VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'];
const TIMEOUT: Milliseconds = 60_000;
const LARGEST_OUTPUT = 1_048_576;
const OutputSchema = z.object({
  apiVersion: z.string(),
  kind: z.literal('ExecCredential'),
  status: z.object({
    token: z.string().min(1).optional(),
    clientCertificateData: z.string().min(1).optional(),
    clientKeyData: z.string().min(1).optional(),
    expirationTimestamp: z.string().optional(),
  }),
});

/** The credentials of a plugin; what it gave is kept in memory until it expires or is refused. */
export class ExecPlugin {
  readonly #spec: ExecSpec;
  readonly #context: ExecContext;
  #remembered: Remembered | undefined;
  #underWay: Promise<Remembered> | undefined;

  /** Throws where the plugin can never be run from here. */
  constructor(spec: ExecSpec, context: ExecContext) {
    this.#spec = spec;
    this.#context = context;
    if (!VERSIONS.includes(spec.apiVersion)) {
      throw this.#trouble(
        `speaks ${spec.apiVersion}, which kubectl dropped in 1.24; update the plugin and write the kubeconfig anew`,
      );
    }
    if (spec.interactiveMode === 'Always') {
      throw this.#trouble('wants a terminal (interactiveMode: Always), and gets none here; use a context that logs in by itself');
    }
  }

  /** Rejects with a SidegateError that holds nothing of what the plugin printed. */
  async credentials(isRefused = false): Promise<Credentials> {
    const known = this.#remembered;
    if (known !== undefined && known.until > this.#context.clock.now() && !isRefused) return expose(known);
    this.#underWay ??= this.#run().finally(() => {
      this.#underWay = undefined;
    });
    const fresh = await this.#underWay;
    this.#remembered = fresh;
    return expose(fresh);
  }

  async #run(): Promise<Remembered> {
    const output = await this.#start();
    const parsed = OutputSchema.safeParse(toJson(output));
    if (!parsed.success) {
      const paths = parsed.error.issues.map(({ path }) => path.join('.') || 'its output').join(', ');
      throw this.#trouble(`printed no ExecCredential that can be used (${paths})`);
    }
    const { apiVersion, status } = parsed.data;
    if (apiVersion !== this.#spec.apiVersion) {
      throw this.#trouble(`answered in another version than the kubeconfig's ${this.#spec.apiVersion}`);
    }
    const { token, clientCertificateData: cert, clientKeyData: key } = status;
    if ((cert === undefined) !== (key === undefined))
      throw this.#trouble('gave a certificate without a key, or a key without one');
    if (token === undefined && cert === undefined) throw this.#trouble('gave neither a token nor a certificate');
    return {
      parts: { token: toSecret(token), cert: toSecret(cert), key: toSecret(key) },
      until: this.#toEnd(status.expirationTimestamp),
    };
  }

  #toEnd(text: string | undefined): EpochMilliseconds {
    if (text === undefined) return Number.POSITIVE_INFINITY;
    const end = Date.parse(text);
    if (Number.isNaN(end)) throw this.#trouble('gave an expirationTimestamp that is no time');
    return end;
  }

  #start(): Promise<string> {
    const { args, env } = this.#spec;
    const { clock, folder, tell } = this.#context;
    const child = spawn(toCommand(this.#spec.command, folder), args ?? [], {
      env: { ...this.#context.env, ...toVariables(env ?? []), KUBERNETES_EXEC_INFO: JSON.stringify(this.#toInfo()) },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return new Promise((resolve, reject) => {
      const fail = (text: string): void => {
        cancel();
        child.kill('SIGKILL');
        // What the plugin itself has started may hold the other ends.
        child.stdout.destroy();
        child.stderr.destroy();
        reject(this.#trouble(text));
      };
      const cancel = clock.after(TIMEOUT, () => fail(`gave nothing within ${TIMEOUT / 1000} s`));
      const chunks: Buffer[] = [];
      let length = 0;
      onEvent(child.stdout, 'data', (chunk: Buffer) => {
        length += chunk.length;
        if (length > LARGEST_OUTPUT) fail(`printed more than ${LARGEST_OUTPUT} bytes`);
        else chunks.push(chunk);
      });
      onEvent(child.stderr.setEncoding('utf8'), 'data', tell);
      onceEvent(child, 'error', (error: NodeJS.ErrnoException) => fail(this.#toStartTrouble(error.code)));
      onceEvent(child, 'close', (code, signal) => {
        cancel();
        if (code === 0) resolve(Buffer.concat(chunks).toString('utf8'));
        else reject(this.#trouble(`ended with ${signal ?? `exit code ${code}`}`));
      });
    });
  }

  #toStartTrouble(code: string | undefined): string {
    const { installHint } = this.#spec;
    const hint = installHint ? `: ${installHint.trim()}` : '; install it, or put it on the PATH';
    return code === 'ENOENT' ? `is not installed${hint}` : `cannot be started (${code ?? 'unknown reason'})`;
  }

  /** The ExecCredential that says what is wanted. */
  #toInfo(): object {
    const { apiVersion, provideClusterInfo } = this.#spec;
    const cluster = provideClusterInfo === true ? { cluster: this.#context.cluster } : undefined;
    return { apiVersion, kind: 'ExecCredential', spec: { ...cluster, interactive: false } };
  }

  #trouble(text: string): SidegateError {
    return new SidegateError('user', 'kube_exec', `the credential plugin ${this.#spec.command} ${text}`);
  }
}

/** A name is looked up in PATH; a path counts from the kubeconfig's folder. */
function toCommand(command: string, folder: string): string {
  return command.includes('/') && !command.startsWith('/') ? `${folder}/${command}` : command;
}

function toVariables(env: NonNullable<ExecSpec['env']>): Record<string, string> {
  return Object.fromEntries(env.map(({ name, value }) => [name, value]));
}

function toJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function toSecret(text: string | undefined): Secret | undefined {
  return text === undefined ? undefined : new Secret(Buffer.from(text));
}

function expose({ parts }: Remembered): Credentials {
  const given = Object.entries(parts).flatMap(([part, secret]) =>
    secret === undefined ? [] : [[part, secret.expose().toString()]],
  );
  return Object.fromEntries(given) as Credentials;
}
