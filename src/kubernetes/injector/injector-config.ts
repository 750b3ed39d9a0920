/** Loads the injector's config: parses the YAML, and returns a typed, frozen value or all problems at once. */
import * as z from 'zod';
import { parseYaml, readText } from '../../config/load/document.ts';
import { toProblems } from '../../config/schema/issues.ts';
import type { JsonSchema } from '../../config/schema/json-schema.ts';
import { error, type LocatedProblem, type Problem } from '../../core/problem.ts';
import { InjectorConfigSchema } from './injector-schema.ts';
import { toAmount } from './kubernetes-values.ts';

type ParsedInjectorConfig = z.output<typeof InjectorConfigSchema>;
/** Settings of sidecars that a pod's annotations can override. */
export type SidecarDefaults = Readonly<ParsedInjectorConfig['sidecar']>;
/** Settings of the injector's server. @public */
export type InjectServerConfig = Readonly<NonNullable<ParsedInjectorConfig['server']>>;
/** The whole config. */
export type InjectorConfig = Readonly<ParsedInjectorConfig>;

/** The config with warnings, or the problems that prevent loading it. */
interface InjectorConfigRead {
  readonly config: InjectorConfig | undefined;
  readonly problems: readonly LocatedProblem[];
}

/** The draft-07 schema, for editors. */
function toInjectorJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(InjectorConfigSchema, { io: 'input', target: 'draft-07', unrepresentable: 'any' });
  return { ...(schema as JsonSchema), title: 'sidegate injector configuration' };
}

/** Reads and checks `file`; never throws for anything in it. */
export async function loadInjectorConfig(file: string): Promise<InjectorConfigRead> {
  const text = await readText(file);
  return typeof text === 'string' ? parseInjectorConfig(file, text) : { config: undefined, problems: [text] };
}

/** Checks the text of `file`. */
export function parseInjectorConfig(file: string, text: string): InjectorConfigRead {
  const read = parseYaml(file, text, 'start with sidecar:');
  if ('problems' in read) return { config: undefined, problems: read.problems };
  const parsed = InjectorConfigSchema.safeParse(read.value, { reportInput: true });
  const found = parsed.success
    ? [...findClashes(parsed.data.sidecar), ...findTooSmallLimits(parsed.data.sidecar)]
    : toProblems(parsed.error.issues, toInjectorJsonSchema());
  const problems = found.map(read.locate);
  return { config: parsed.success && problems.length === 0 ? Object.freeze(parsed.data) : undefined, problems };
}

/** The defaults for `image`, without a config file. */
export function toSidecarDefaults(image: string): SidecarDefaults {
  return InjectorConfigSchema.parse({ sidecar: { image } }).sidecar;
}

function findClashes({ port, adminPort, movedPort }: SidecarDefaults): Problem[] {
  const found: Problem[] = [];
  const hint = 'choose another port';
  if (port === adminPort) found.push(error(['sidecar', 'adminPort'], `${adminPort} equals sidecar.port`, hint));
  if (movedPort === port || movedPort === adminPort)
    found.push(error(['sidecar', 'movedPort'], `${movedPort} is already a port of the sidecar`, hint));
  return found;
}

/** With these limits, the injector would deny every pod without its own resource annotations. */
function findTooSmallLimits({ resources: { requests, limits } }: SidecarDefaults): Problem[] {
  const found: Problem[] = [];
  for (const kind of ['cpu', 'memory'] as const) {
    const [request, limit] = [requests[kind], limits[kind]];
    if (limit !== undefined && toAmount(request) > toAmount(limit))
      found.push(
        error(
          ['sidecar', 'resources', 'requests', kind],
          `${request} is above sidecar.resources.limits.${kind}, which is ${limit}`,
          'raise the limit, or lower the request',
        ),
      );
  }
  return found;
}
