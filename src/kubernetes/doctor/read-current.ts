/** Reads what sidecars are made as at present: the injector's config, and what the chart's policies allow. */

import type { KubeClient } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { type InjectorConfig, parseInjectorConfig, type SidecarDefaults } from '../injector/injector-config.ts';
import { RULES_ANNOTATION } from '../injector/names.ts';
import { isRaw, listAt } from '../injector/raw.ts';
import { repositoryOf, type SidecarRules } from '../injector/sidecar-rules.ts';
import { toDefaultsHash } from '../injector/status.ts';
import { type Current, type Found, itemsOf } from './facts.ts';
import { WEBHOOK } from './judge-injection.ts';
import type { Named, WebhookConfiguration } from './objects.ts';

const FORBIDDEN = 403;
const INJECTOR_KEY = 'injector.yaml';
const VERSION_LABEL = 'app.kubernetes.io/version';

/** What of the cluster tells it. */
export interface Installed {
  readonly webhooks: Found<WebhookConfiguration>;
  readonly policies: Found<Named>;
}
interface Given {
  readonly config: InjectorConfig;
  readonly version: string;
}

/** By the config that is given, else by what is installed. */
export async function readCurrent(client: KubeClient, installed: Installed, given: Given | undefined): Promise<Current> {
  if (given !== undefined) {
    const { sidecar } = given.config;
    return { version: given.version, hash: toDefaultsHash(sidecar), rules: toRules(sidecar), unknown: undefined };
  }
  const { defaults, ...current } = await readInstalled(client, installed.webhooks);
  const rules = readPolicyRules(installed.policies) ?? (defaults === undefined ? undefined : toRules(defaults));
  return { ...current, rules };
}

/** The Service of the injector, as its webhook has it. */
export function serviceOf(
  webhooks: Found<WebhookConfiguration>,
): { readonly namespace: string; readonly name: string } | undefined {
  const own = itemsOf(webhooks).flatMap((each) => each.webhooks ?? []);
  return own.find(({ name }) => name === WEBHOOK)?.clientConfig.service;
}

type InstalledDefaults = Omit<Current, 'rules'> & { readonly defaults?: SidecarDefaults };

/** The injector's ConfigMap has the name of its Service; its version is on everything that the chart made. */
async function readInstalled(client: KubeClient, webhooks: Found<WebhookConfiguration>): Promise<InstalledDefaults> {
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
      return { version, hash: undefined, unknown: `the ConfigMap ${namespace}/${name} holds no sound ${INJECTOR_KEY}` };
    return {
      version,
      hash: toDefaultsHash(config.sidecar),
      unknown: version === undefined ? 'the webhook bears no version' : undefined,
      defaults: config.sidecar,
    };
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    const why = thrown.status === FORBIDDEN ? `you may not get the ConfigMap ${namespace}/${name}` : thrown.message;
    return { version, hash: undefined, unknown: why };
  }
}

/** Where the config names no images, those of the default image's repository are its own. */
function toRules({ image, allowedImages = [repositoryOf(image)], allowedEnv, allowedMounts }: SidecarDefaults): SidecarRules {
  return { allowedImages, allowedEnv, allowedMounts };
}

/** What the chart noted on its policies. Whoever can change them can change what they deny as well. */
function readPolicyRules(policies: Found<Named>): SidecarRules | undefined {
  const noted = itemsOf(policies).flatMap(({ metadata }) => parseRules(metadata.annotations?.[RULES_ANNOTATION]));
  if (noted.length === 0) return undefined;
  const union = (key: keyof SidecarRules): string[] => [
    ...new Set(noted.flatMap((each) => listAt(each, key).filter((item) => typeof item === 'string'))),
  ];
  return { allowedImages: union('allowedImages'), allowedEnv: union('allowedEnv'), allowedMounts: union('allowedMounts') };
}

function parseRules(text: string | undefined): object[] {
  try {
    const value: unknown = JSON.parse(text ?? '');
    return isRaw(value) ? [value] : [];
  } catch {
    return [];
  }
}
