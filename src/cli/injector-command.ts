/** Shared by `inject-server` and `rotate-certificates`: options, the injector's config, the cluster. */
import { parseArgs } from 'node:util';
import { systemClock } from '../core/clock.ts';
import { SidegateError } from '../core/errors.ts';
import { formatProblem } from '../core/problem.ts';
import { KubeClient } from '../kubernetes/client/client.ts';
import { findCluster } from '../kubernetes/client/kubeconfig.ts';
import { type InjectorConfig, loadInjectorConfig } from '../kubernetes/injector/injector-config.ts';
import { describeArgument } from './arguments.ts';
import { EXIT, type Io } from './io.ts';

/** Parsed options. */
export interface InjectorOptions {
  readonly config: string;
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/** Returns the options, or an exit code if the command must not run. */
export function parseInjectorOptions(args: readonly string[], name: string, io: Io): InjectorOptions | number {
  const options = {
    config: { type: 'string', short: 'c' },
    kubeconfig: { type: 'string' },
    context: { type: 'string' },
  } as const;
  try {
    const { values } = parseArgs({ args: [...args], options, strict: true, allowPositionals: false });
    if (values.config !== undefined) return { config: values.config, kubeconfig: values.kubeconfig, context: values.context };
    io.stderr(`sidegate: ${name} needs --config FILE\n`);
  } catch (thrown) {
    io.stderr(`sidegate: ${name}: ${describeArgument(thrown, Object.keys(options))}\n`);
  }
  return EXIT.usage;
}

/** Returns undefined after reporting problems. */
export async function readInjectorConfig(file: string, io: Io): Promise<InjectorConfig | undefined> {
  const { config, problems } = await loadInjectorConfig(file);
  for (const problem of problems) io.stderr(`${formatProblem(problem)}\n`);
  return config;
}

/** Returns undefined after reporting why. */
export async function openCluster({ kubeconfig, context }: InjectorOptions, io: Io): Promise<KubeClient | undefined> {
  try {
    const { access } = await findCluster({ file: kubeconfig, context, env: io.env, clock: systemClock, onMessage: io.stderr });
    return new KubeClient(access, systemClock);
  } catch (thrown) {
    if (!(thrown instanceof SidegateError && thrown.kind === 'user')) throw thrown;
    io.stderr(`sidegate: ${thrown.message}\n`);
    return undefined;
  }
}
