/** Reads the injector's config: YAML with positions, to a typed, frozen value or to all problems at once. */
import * as z from 'zod';
import { parseYaml, readText } from '../../config/load/document.ts';
import { toFindings } from '../../config/schema/issues.ts';
import type { JsonSchema } from '../../config/schema/json-schema.ts';
import type { Problem } from '../../config/schema/problem.ts';
import { InjectorConfigSchema } from './injector-schema.ts';
import { toAmount } from './kubernetes-values.ts';

type Parsed = z.output<typeof InjectorConfigSchema>;
/** What sidecars are like where a pod's annotations do not say otherwise. */
export type SidecarDefaults = Readonly<Parsed['sidecar']>;
/** How the injector is reached. @public */
export type InjectServerConfig = Readonly<NonNullable<Parsed['server']>>;
/** The whole config. */
export type InjectorConfig = Readonly<Parsed>;

/** Either the config, or why there is none. */
export type InjectorConfigRead =
  | { readonly config: InjectorConfig; readonly problems: readonly [] }
  | { readonly config: undefined; readonly problems: readonly Problem[] };

/** Draft-07, for editors. */
export function toInjectorJsonSchema(): JsonSchema {
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
  if (parsed.success) {
    const findings = [...findClashes(parsed.data.sidecar), ...findTooSmallLimits(parsed.data.sidecar)];
    if (findings.length === 0) return { config: Object.freeze(parsed.data), problems: [] };
    return { config: undefined, problems: findings.map((finding) => read.toProblem('error', finding)) };
  }
  const findings = toFindings(parsed.error.issues, toInjectorJsonSchema());
  return { config: undefined, problems: findings.map((finding) => read.toProblem('error', finding)) };
}

/** The defaults for `image`, where no file says otherwise. */
export function toSidecarDefaults(image: string): SidecarDefaults {
  return InjectorConfigSchema.parse({ sidecar: { image } }).sidecar;
}

function findClashes({ port, adminPort, movedPort }: SidecarDefaults) {
  const findings = [];
  if (port === adminPort)
    findings.push({
      path: ['sidecar', 'adminPort'],
      message: `${adminPort} is sidecar.port already`,
      hint: 'choose another port',
    });
  if (movedPort === port || movedPort === adminPort)
    findings.push({
      path: ['sidecar', 'movedPort'],
      message: `${movedPort} is a port of the sidecar`,
      hint: 'choose another port',
    });
  return findings;
}

/** The injector would deny every pod that says nothing of its own. */
function findTooSmallLimits({ resources: { requests, limits } }: SidecarDefaults) {
  const findings = [];
  for (const kind of ['cpu', 'memory'] as const) {
    const [request, limit] = [requests[kind], limits[kind]];
    if (limit !== undefined && toAmount(request) > toAmount(limit))
      findings.push({
        path: ['sidecar', 'resources', 'requests', kind],
        message: `${request} is above sidecar.resources.limits.${kind}, which is ${limit}`,
        hint: 'raise the limit, or lower the request',
      });
  }
  return findings;
}
