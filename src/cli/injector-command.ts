/** What `inject-server` and `rotate-certificates` have in common: options, the injector's config, the cluster. */
import { parseArgs } from 'node:util';
import { formatProblem } from '../config/schema/problem.ts';
import { systemClock } from '../core/clock.ts';
import { SidegateError, toErrorText } from '../core/errors.ts';
import { KubeClient } from '../kubernetes/client/client.ts';
import { findCluster } from '../kubernetes/client/kubeconfig.ts';
import { type InjectorConfig, loadInjectorConfig } from '../kubernetes/injector/injector-config.ts';
import { EXIT, type Io } from './io.ts';

/** The options of both commands, for their help. */
export const INJECTOR_OPTIONS = `Options:
  -c, --config FILE    config file of the injector (required)
  --kubeconfig FILE    the cluster; left out: KUBECONFIG, ~/.kube/config, or the one that this pod is in
  --context NAME       of the kubeconfig; left out: its current one
  -h, --help           show this
`;

/** The options that were given. */
export interface InjectorOptions {
  readonly config: string;
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/** The options, or the exit code where the command is over already. */
export function parseInjectorOptions(
  args: readonly string[],
  { name, help }: { readonly name: string; readonly help: string },
  io: Io,
): InjectorOptions | number {
  const options = {
    config: { type: 'string', short: 'c' },
    kubeconfig: { type: 'string' },
    context: { type: 'string' },
    help: { type: 'boolean', short: 'h' },
  } as const;
  try {
    const { values } = parseArgs({ args: [...args], options, strict: true, allowPositionals: false });
    if (values.help === true) {
      io.stdout(help);
      return EXIT.ok;
    }
    if (values.config !== undefined) return { config: values.config, kubeconfig: values.kubeconfig, context: values.context };
    io.stderr(`sidegate ${name}: which config? give --config FILE\n`);
  } catch (thrown) {
    io.stderr(`sidegate ${name}: ${toErrorText(thrown)}\n`);
  }
  return EXIT.usage;
}

/** Undefined where its problems were reported. */
export async function readInjectorConfig(file: string, io: Io): Promise<InjectorConfig | undefined> {
  const { config, problems } = await loadInjectorConfig(file);
  for (const problem of problems) io.stderr(`${formatProblem(problem)}\n`);
  return config;
}

/** Undefined where the reason was reported. */
export async function openCluster({ kubeconfig, context }: InjectorOptions, io: Io): Promise<KubeClient | undefined> {
  try {
    const { access } = await findCluster({ file: kubeconfig, context, env: io.env, clock: systemClock, tell: io.stderr });
    return new KubeClient(access, systemClock);
  } catch (thrown) {
    if (!(thrown instanceof SidegateError && thrown.kind === 'user')) throw thrown;
    io.stderr(`sidegate: ${thrown.message}\n`);
    return undefined;
  }
}
