/** Reads the overrides in the arguments of a sidecar, and finds the variables to which a config refers, and which sidecars do not have. */
import { parseArgs } from 'node:util';
import type { Overrides } from '../../config/load/load.ts';
import { CONTAINER, DOMAIN, SECRETS_FOLDER } from './names.ts';
import type { Injection } from './outcome.ts';
import { isRaw, listAt, textAt } from './raw.ts';

/** A placeholder for the pod's addresses, which are not known yet; any address except loopback works here (RFC 5737). */
const POD_ADDRESSES = '192.0.2.1';
const OPTIONS = {
  config: { type: 'string' },
  listen: { type: 'string' },
  admin: { type: 'string' },
  upstream: { type: 'string' },
  'app-probe': { type: 'string', multiple: true },
} as const;

/** The overrides in the arguments of a container `sidegate`; undefined if it has other flags than the injector sets. */
export function toSidecarOverrides([, ...rest]: readonly unknown[]): Overrides | undefined {
  const args = rest.map((arg) => expand(String(arg)));
  try {
    const { listen, admin, upstream, 'app-probe': appProbes } = parseArgs({ args, options: OPTIONS, strict: true }).values;
    return { listen, admin, upstream, appProbes };
  } catch {
    return undefined;
  }
}

/** The arguments of the container in the patch; none without such a container. */
export function findArgs({ patch }: Extract<Injection, { outcome: 'injected' }>): readonly unknown[] {
  const added = patch.flatMap((operation) => ('value' in operation ? [operation.value].flat() : []));
  const container = added.find((value) => isRaw(value) && textAt(value, 'name') === CONTAINER);
  return listAt(container, 'args');
}

/** Expands like Kubernetes: `$$` is a dollar sign, `$(NAME)` the variable. */
function expand(arg: string): string {
  return arg.replace(/\$\$|\$\([^$)]*\)/g, (found) => (found === '$$' ? '$' : POD_ADDRESSES));
}

/** A place in a config that refers to an environment variable. */
export interface VariableReference {
  readonly path: string;
  readonly variable: string;
}

/** Keys that refer to a variable, and the keys to use instead in a pod. */
const IN_A_POD: Readonly<Record<string, string>> = { env: 'file', passwordEnv: 'passwordFile' };
/** Records with texts as their values, in which `env` is a name like any other. */
const TEXTS = /^tracing\.resource$|^provider\.endpoints\.\d+\.headers$|\.sortedForm$/;
const FOLDER = `..${SECRETS_FOLDER.slice(SECRETS_FOLDER.lastIndexOf('/'))}`;

/** All references of a config to variables. */
export function findReferences(value: unknown, path: readonly string[] = []): VariableReference[] {
  if (typeof value !== 'object' || value === null || TEXTS.test(path.join('.'))) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const here = [...path, key];
    if (Object.hasOwn(IN_A_POD, key) && typeof inner === 'string') return [{ path: here.join('.'), variable: inner }];
    return findReferences(inner, here);
  });
}

/** Explains references to variables that the sidecar does not have, and how to fix them; undefined if there are none. */
export function explainReferences(
  references: readonly VariableReference[],
): { readonly message: string; readonly fix: string } | undefined {
  const [first, ...others] = references;
  if (first === undefined) return undefined;
  const { path, variable } = first;
  const instead = IN_A_POD[path.slice(path.lastIndexOf('.') + 1)];
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  return {
    message: `${path} is ${variable}${more}, but the sidecar has no such variable`,
    fix: `write ${instead}: ${FOLDER}/NAME/KEY instead, and add the Secret's NAME to ${DOMAIN}/secrets`,
  };
}
