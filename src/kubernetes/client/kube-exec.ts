/** Runs a kubeconfig's credential plugin (client.authentication.k8s.io), as EKS, GKE and AKS use, and caches its credentials. */
import { spawn } from 'node:child_process';
import * as z from 'zod';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import { Secret } from '../../core/secret.ts';
import type { Credentials } from './access.ts';

/** A plugin's entry in the kubeconfig. */
export const ExecSchema = z.object({
  command: z.string().min(1),
  args: z.array(z.string()).nullish(),
  env: z.array(z.object({ name: z.string().min(1), value: z.string() })).nullish(),
  apiVersion: z.string(),
  installHint: z.string().nullish(),
  provideClusterInfo: z.boolean().nullish(),
  interactiveMode: z.string().nullish(),
});

type ExecSpec = z.output<typeof ExecSchema>;

interface Remembered {
  readonly parts: { readonly [Part in keyof Credentials]?: Secret | undefined };
  readonly until: EpochMilliseconds;
}

const VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'];
const TIMEOUT: Milliseconds = 60_000;
const MAX_OUTPUT_BYTES = 1_048_576;
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

/** The credentials of a plugin, cached in memory until they expire or are rejected. */
export class ExecPlugin {
  readonly #spec: ExecSpec;
  readonly #context;
  #remembered: Remembered | undefined;
  #underWay: Promise<Remembered> | undefined;

  /** Throws SidegateError if the plugin cannot be used. */
  constructor(
    spec: ExecSpec,
    context: {
      readonly env: Readonly<Record<string, string | undefined>>;
      readonly clock: Clock;
      /** The directory of the kubeconfig; relative commands are resolved against it. */
      readonly folder: string;
      /** Passed to the plugin if it sets provideClusterInfo. */
      readonly cluster: Readonly<Record<string, unknown>>;
      /** Receives the plugin's standard error, such as a login URL or the reason of a failure. */
      readonly onMessage: (text: string) => void;
    },
  ) {
    this.#spec = spec;
    this.#context = context;
    if (!VERSIONS.includes(spec.apiVersion)) {
      throw this.#toError(
        `uses ${spec.apiVersion}, which kubectl removed in 1.24; update the plugin and create the kubeconfig again`,
      );
    }
    if (spec.interactiveMode === 'Always') {
      throw this.#toError(
        'requires a terminal (interactiveMode: Always), which is not available; use a context that logs in without one',
      );
    }
  }

  /** Rejects with a SidegateError that contains nothing of the plugin's output. */
  async credentials(isRejected = false): Promise<Credentials> {
    const known = this.#remembered;
    if (known !== undefined && known.until > this.#context.clock.now() && !isRejected) return expose(known);
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
      const paths = parsed.error.issues.map(({ path }) => path.join('.') || 'the whole output').join(', ');
      throw this.#toError(`printed no valid ExecCredential (invalid: ${paths})`);
    }
    const { apiVersion, status } = parsed.data;
    if (apiVersion !== this.#spec.apiVersion) {
      throw this.#toError(`printed another apiVersion than the kubeconfig's ${this.#spec.apiVersion}`);
    }
    const { token, clientCertificateData: cert, clientKeyData: key } = status;
    if ((cert === undefined) !== (key === undefined))
      throw this.#toError('returned a certificate without a key, or a key without a certificate');
    if (token === undefined && cert === undefined) throw this.#toError('returned neither a token nor a certificate');
    return {
      parts: { token: toSecret(token), cert: toSecret(cert), key: toSecret(key) },
      until: this.#toEnd(status.expirationTimestamp),
    };
  }

  #toEnd(text: string | undefined): EpochMilliseconds {
    if (text === undefined) return Number.POSITIVE_INFINITY;
    const end = Date.parse(text);
    if (Number.isNaN(end)) throw this.#toError('returned an invalid expirationTimestamp');
    return end;
  }

  #start(): Promise<string> {
    const { args, env } = this.#spec;
    const { clock, folder, onMessage } = this.#context;
    const child = spawn(toCommand(this.#spec.command, folder), args ?? [], {
      env: { ...this.#context.env, ...toVariables(env ?? []), KUBERNETES_EXEC_INFO: JSON.stringify(this.#toInfo()) },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    return new Promise((resolve, reject) => {
      const fail = (text: string): void => {
        cancel();
        child.kill('SIGKILL');
        // Processes that the plugin started may keep the other ends open.
        child.stdout.destroy();
        child.stderr.destroy();
        reject(this.#toError(text));
      };
      const cancel = clock.after(TIMEOUT, () => fail(`did not finish within ${TIMEOUT / 1000} s`));
      const chunks: Buffer[] = [];
      let length = 0;
      onEvent(child.stdout, 'data', (chunk: Buffer) => {
        length += chunk.length;
        if (length > MAX_OUTPUT_BYTES) fail(`printed more than ${MAX_OUTPUT_BYTES} bytes`);
        else chunks.push(chunk);
      });
      onEvent(child.stderr.setEncoding('utf8'), 'data', onMessage);
      onceEvent(child, 'error', (error: NodeJS.ErrnoException) => fail(this.#toStartFailure(error.code)));
      onceEvent(child, 'close', (code, signal) => {
        cancel();
        if (code === 0) resolve(Buffer.concat(chunks).toString('utf8'));
        else reject(this.#toError(`ended with ${signal ?? `exit code ${code}`}`));
      });
    });
  }

  #toStartFailure(code: string | undefined): string {
    const { installHint } = this.#spec;
    const hint = installHint ? `: ${installHint.trim()}` : '; install it, or add its directory to PATH';
    return code === 'ENOENT' ? `is not installed${hint}` : `cannot be started (${code ?? 'unknown reason'})`;
  }

  /** The ExecCredential that describes the request to the plugin. */
  #toInfo(): object {
    const { apiVersion, provideClusterInfo } = this.#spec;
    const cluster = provideClusterInfo === true ? { cluster: this.#context.cluster } : undefined;
    return { apiVersion, kind: 'ExecCredential', spec: { ...cluster, interactive: false } };
  }

  #toError(text: string): SidegateError {
    return new SidegateError('user', 'kube_exec', `the credential plugin ${this.#spec.command} ${text}`);
  }
}

/** A name is looked up in PATH; a relative path is resolved against the kubeconfig's directory. */
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
