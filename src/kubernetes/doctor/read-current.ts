/** Reads how sidecars are created at present: the injector's config, and what the chart's policies allow. */

import type { KubeClient } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { type InjectorConfig, parseInjectorConfig, type SidecarDefaults } from '../injector/injector-config.ts';
import { RULES_ANNOTATION } from '../injector/names.ts';
import { isRaw, listAt } from '../injector/raw.ts';
import { repositoryOf, type SidecarRules } from '../injector/sidecar-rules.ts';
import { toDefaultsHash } from '../injector/status.ts';
import { WEBHOOK } from './check-injection.ts';
import { type Current, type FoundObjects, itemsOf } from './facts.ts';
import type { Named, WebhookConfiguration } from './objects.ts';

const FORBIDDEN = 403;
const INJECTOR_KEY = 'injector.yaml';
const VERSION_LABEL = 'app.kubernetes.io/version';

/** The objects that it is read from. */
interface Installed {
  readonly webhooks: FoundObjects<WebhookConfiguration>;
  readonly policies: FoundObjects<Named>;
}
interface Given {
  readonly config: InjectorConfig;
  readonly version: string;
}

/** Uses the given config, or else what is installed in the cluster. */
export async function readCurrent(client: KubeClient, installed: Installed, given: Given | undefined): Promise<Current> {
  if (given !== undefined) {
    const { sidecar } = given.config;
    const { cpu: cpuLimit } = sidecar.resources.limits;
    return { version: given.version, hash: toDefaultsHash(sidecar), cpuLimit, rules: toRules(sidecar), unknown: undefined };
  }
  const { defaults, ...current } = await readInstalled(client, installed.webhooks);
  const rules = readPolicyRules(installed.policies) ?? (defaults === undefined ? undefined : toRules(defaults));
  return { ...current, cpuLimit: defaults?.resources.limits.cpu, rules };
}

/** The Service of the injector, from its webhook configuration. */
export function serviceOf(
  webhooks: FoundObjects<WebhookConfiguration>,
): { readonly namespace: string; readonly name: string } | undefined {
  const own = itemsOf(webhooks).flatMap((each) => each.webhooks ?? []);
  return own.find(({ name }) => name === WEBHOOK)?.clientConfig.service;
}

type InstalledDefaults = Omit<Current, 'rules'> & { readonly defaults?: SidecarDefaults };

/** The injector's ConfigMap has the name of its Service; its version is a label on all objects of the chart. */
async function readInstalled(client: KubeClient, webhooks: FoundObjects<WebhookConfiguration>): Promise<InstalledDefaults> {
  if ('unknown' in webhooks) return { version: undefined, hash: undefined, unknown: webhooks.unknown };
  const owner = webhooks.items.find((each) => each.webhooks?.some(({ name }) => name === WEBHOOK));
  const version = owner?.metadata.labels?.[VERSION_LABEL];
  const service = serviceOf(webhooks);
  if (service === undefined) return { version, hash: undefined, unknown: 'no injector was found' };
  const { namespace, name } = service;
  try {
    const { data = {} } = await client.request<{ data?: Record<string, string> }>(
      'GET',
      `/api/v1/namespaces/${namespace}/configmaps/${name}`,
    );
    const { config } = parseInjectorConfig(INJECTOR_KEY, data[INJECTOR_KEY] ?? '');
    if (config === undefined)
      return { version, hash: undefined, unknown: `the ConfigMap ${namespace}/${name} has no valid ${INJECTOR_KEY}` };
    return {
      version,
      hash: toDefaultsHash(config.sidecar),
      unknown: version === undefined ? 'the webhook configuration has no version label' : undefined,
      defaults: config.sidecar,
    };
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    const why = thrown.status === FORBIDDEN ? `you may not get the ConfigMap ${namespace}/${name}` : thrown.message;
    return { version, hash: undefined, unknown: why };
  }
}

/** If the config does not list allowed images, those of the default image's repository are allowed. */
function toRules({ image, allowedImages = [repositoryOf(image)], ...rules }: SidecarDefaults): SidecarRules {
  return {
    allowedImages,
    allowedEnv: rules.allowedEnv,
    allowedMounts: rules.allowedMounts,
    allowedInitContainers: rules.allowedInitContainers,
  };
}

/** The rules that the chart records on its policies. They can be trusted: anyone who can change them can also change what the policies deny. */
function readPolicyRules(policies: FoundObjects<Named>): SidecarRules | undefined {
  const noted = itemsOf(policies).flatMap(({ metadata }) => parseRules(metadata.annotations?.[RULES_ANNOTATION]));
  if (noted.length === 0) return undefined;
  const union = (key: keyof SidecarRules): string[] => [
    ...new Set(noted.flatMap((each) => listAt(each, key).filter((item) => typeof item === 'string'))),
  ];
  return {
    allowedImages: union('allowedImages'),
    allowedEnv: union('allowedEnv'),
    allowedMounts: union('allowedMounts'),
    allowedInitContainers: union('allowedInitContainers'),
  };
}

function parseRules(text: string | undefined): object[] {
  try {
    const value: unknown = JSON.parse(text ?? '');
    return isRaw(value) ? [value] : [];
  } catch {
    return [];
  }
}
