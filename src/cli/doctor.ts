/** `sidegate doctor`: reports which workloads of a cluster are protected, and what bypasses their sidecars. */
import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import { formatProblem } from '../core/problem.ts';
import { type Cluster, connectCluster } from '../kubernetes/client/cluster.ts';
import { KubeError } from '../kubernetes/client/error.ts';
import { readFacts } from '../kubernetes/doctor/read-cluster.ts';
import { type DoctorReport, diagnose, toJson, toText } from '../kubernetes/doctor/report.ts';
import { type InjectorConfig, loadInjectorConfig } from '../kubernetes/injector/injector-config.ts';
import { toChoice } from './input.ts';

import { EXIT, type Io } from './io.ts';
import { closeAtExit } from './shutdown.ts';
import { readVersion } from './version.ts';

const FAIL_ON: readonly string[] = ['error', 'warning'];
/** A label (RFC 1123 §2.1); it becomes part of a URL path. */
const NAMESPACE = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;

/** Exits with 1 if a workload is unprotected or bypassed, or if there is a finding of at least the severity of `--fail-on`. */
export async function examineCluster(
  options: {
    readonly kubeconfig?: string;
    readonly context?: string;
    readonly namespace?: string;
    readonly allNamespaces?: boolean;
    readonly config?: string;
    readonly format: string;
    readonly failOn: string;
    readonly live?: boolean;
  },
  io: Io,
): Promise<number> {
  toChoice(options.failOn, FAIL_ON, '--fail-on');
  if (options.namespace !== undefined && options.allNamespaces === true)
    throw usageError('use either --namespace or --all-namespaces');
  if (options.namespace !== undefined && !NAMESPACE.test(options.namespace))
    throw usageError(`--namespace ${options.namespace} is not a valid namespace name`);
  const given = options.config === undefined ? undefined : await readGiven(options.config, io);
  const cluster = await connectCluster({ ...options, clock: systemClock, io, closeAtExit });
  try {
    return await reportOn(cluster, { ...options, given }, io);
  } finally {
    cluster.client.close();
  }
}

/** Examines a cluster to which the client is connected. */
export async function reportOn(
  cluster: Cluster,
  options: {
    readonly namespace?: string;
    readonly allNamespaces?: boolean;
    readonly given: InjectorConfig | undefined;
    readonly format: string;
    readonly failOn: string;
    readonly live?: boolean;
  },
  io: Io,
): Promise<number> {
  const { format, failOn } = options;
  const namespace = options.allNamespaces === true ? undefined : (options.namespace ?? cluster.namespace);
  const given = options.given === undefined ? undefined : { config: options.given, version: readVersion() };
  try {
    const facts = await readFacts(cluster.client, { namespace, isLive: options.live === true, given }, systemClock);
    const report = diagnose(facts);
    const subject = { context: cluster.name, namespace };
    io.stdout(format === 'json' ? toJson(report, subject) : toText(report, subject, io.isColored === true));
    return isFailed(report, failOn) ? EXIT.failed : EXIT.ok;
  } catch (thrown) {
    // Without a response from the API server there is no result.
    if (thrown instanceof KubeError) throw usageError(thrown.message);
    throw thrown;
  }
}

/** A bypass may be a warning, such as of a port that may serve nothing but metrics. */
function isFailed({ findings, states }: DoctorReport, failOn: string): boolean {
  const isOpen = states.unprotected > 0 || states.bypassed > 0;
  return isOpen || findings.error > 0 || (failOn === 'warning' && findings.warning > 0);
}

async function readGiven(file: string, io: Io): Promise<InjectorConfig> {
  const { config, problems } = await loadInjectorConfig(file);
  if (config === undefined) throw usageError(`--config: ${problems.map(formatProblem).join('\n')}`);
  for (const warning of problems) io.stderr(`${formatProblem(warning)}\n`);
  return config;
}
