/** Warns about environment variables in a config, because the injected sidecar does not have them. */
import { DOMAIN, SECRETS_FOLDER } from '../injector/names.ts';

interface Reference {
  readonly path: string;
  readonly variable: string;
}

/** Keys that refer to a variable, and the keys to use instead in a pod. */
const IN_A_POD: Readonly<Record<string, string>> = { env: 'file', passwordEnv: 'passwordFile' };
const FOLDER = `..${SECRETS_FOLDER.slice(SECRETS_FOLDER.lastIndexOf('/'))}`;

/** A warning if the config in the ConfigMap `name` refers to variables. */
export function warnOfVariables(config: unknown, name: string): readonly string[] {
  const [first, ...others] = findReferences(config, []);
  if (first === undefined) return [];
  const { path, variable } = first;
  const instead = IN_A_POD[path.slice(path.lastIndexOf('.') + 1)];
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  return [
    `ConfigMap ${name}: ${path} is ${variable}${more}, but the sidecar has no such variable: write ${instead}: ${FOLDER}/NAME/KEY instead, and add the Secret's NAME to ${DOMAIN}/secrets`,
  ];
}

function findReferences(value: unknown, path: readonly string[]): Reference[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const here = [...path, key];
    if (key in IN_A_POD && typeof inner === 'string') return [{ path: here.join('.'), variable: inner }];
    return findReferences(inner, here);
  });
}
