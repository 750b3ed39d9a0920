/** The fields of a kubeconfig that determine how to connect to a cluster; others are ignored. */
import * as z from 'zod';
import type { Clock } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { ExecSchema } from './kube-exec.ts';
import { OidcSchema } from './kube-oidc.ts';

const text = z.string().nullish();
const Cluster = z.object({
  server: text,
  'certificate-authority': text,
  'certificate-authority-data': text,
  'insecure-skip-tls-verify': z.boolean().nullish(),
  'tls-server-name': text,
  'proxy-url': text,
  extensions: z.array(z.object({ name: z.string(), extension: z.unknown() })).nullish(),
});
const User = z.object({
  token: text,
  tokenFile: text,
  'client-certificate': text,
  'client-certificate-data': text,
  'client-key': text,
  'client-key-data': text,
  username: text,
  as: text,
  'as-uid': text,
  'as-groups': z.array(z.string()).nullish(),
  'as-user-extra': z.record(z.string(), z.array(z.string())).nullish(),
  'auth-provider': z.object({ name: text, config: OidcSchema.nullish() }).nullish(),
  exec: ExecSchema.nullish(),
});
const Context = z.object({ cluster: text, user: text, namespace: text });

/** One file. */
export const KubeconfigSchema = z.object({
  'current-context': text,
  clusters: z.array(z.object({ name: z.string(), cluster: Cluster.nullish() })).nullish(),
  users: z.array(z.object({ name: z.string(), user: User.nullish() })).nullish(),
  contexts: z.array(z.object({ name: z.string(), context: Context.nullish() })).nullish(),
});

export type KubeCluster = z.output<typeof Cluster>;
export type KubeUser = z.output<typeof User>;
export type KubeContext = z.output<typeof Context>;

/** Which files and which context to use. */
export interface KubeconfigOptions {
  /** --kubeconfig: only this file. */
  readonly file?: string | undefined;
  readonly context?: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  /** Receives messages of credential plugins and warnings. */
  readonly onMessage: (text: string) => void;
}

/** An entry, with its file and the directory against which its relative paths are resolved. */
export interface PlacedEntry<T> {
  readonly name: string;
  readonly value: T;
  readonly file: string;
  readonly folder: string;
}

/** An error in the kubeconfig. The message contains names of fields and files, never their contents. */
export function kubeconfigError(message: string): SidegateError {
  return new SidegateError('user', 'kubeconfig', `kubeconfig: ${message}`);
}
