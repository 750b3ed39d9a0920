/** Checks whether the sidecar is injected into pods, and pods without it are denied: webhook, policies, injector. */
import { X509Certificate } from 'node:crypto';
import { toInstant } from '../../core/clock.ts';
import { ENFORCE_LABEL } from '../injector/names.ts';
import { WEBHOOK } from './check-injection.ts';
import { type Facts, itemsOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import { fits, isEverything, type PolicyBinding, type WebhookConfiguration } from './objects.ts';
import { injectLabelOf, isProtected } from './sidecar.ts';
import type { Workload } from './workloads.ts';

type Webhook = NonNullable<WebhookConfiguration['webhooks']>[number];
type Scope = Pick<Webhook, 'namespaceSelector' | 'failurePolicy'>;

const RELEASE_LABEL = 'app.kubernetes.io/instance';
const TWO_WEEKS_MS = 14 * 86_400_000;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** All findings about admission; they concern the cluster, not a single workload. */
export function checkAdmission(workloads: readonly Workload[], facts: Facts): Finding[] {
  const webhooks = itemsOf(facts.webhooks)
    .flatMap((each) => each.webhooks ?? [])
    .filter(({ name }) => name === WEBHOOK);
  return [
    ...checkPresence(workloads, webhooks, facts),
    ...webhooks.flatMap((webhook) => checkCa(webhook, facts)),
    ...(webhooks.length === 0 && isByPolicy(facts) ? findSelectors(facts) : webhooks).flatMap((each) =>
      checkFailure(each, facts),
    ),
    ...checkPolicies(facts),
    ...checkEnforcement(facts),
    ...checkEnforceLabels(facts),
    ...checkInjectors(webhooks, facts),
    ...checkReleases(facts),
  ];
}

/** `helm template` cannot look for another release, and Helm keeps the policies of a release that is uninstalled. */
function checkReleases({ webhooks, policies, mutatingPolicies }: Facts): Finding[] {
  const own = itemsOf(webhooks).filter((each) => each.webhooks?.some(({ name }) => name === WEBHOOK));
  const objects = [...own, ...itemsOf(policies), ...itemsOf(mutatingPolicies)];
  const releases = [...new Set(objects.flatMap(({ metadata }) => metadata.labels?.[RELEASE_LABEL] ?? []))].sort();
  if (releases.length < 2) return [];
  const message = `the releases ${listNames(releases)} of the chart admit pods: the policies of each deny the other's pods`;
  const fix =
    'keep one release; uninstall the others and delete their policies: kubectl delete validatingadmissionpolicybindings,validatingadmissionpolicies -l app.kubernetes.io/instance=NAME';
  return [finding('several-releases', message, fix)];
}

function checkPresence(workloads: readonly Workload[], webhooks: readonly Webhook[], facts: Facts): Finding[] {
  const isUnknown = 'unknown' in facts.webhooks || 'unknown' in facts.mutatingPolicies || 'unknown' in facts.mutatingBindings;
  if (webhooks.length > 0 || isByPolicy(facts) || isUnknown) return [];
  const asking = workloads.filter(({ template, pods }) =>
    (template === undefined ? pods : [template]).some((each) => injectLabelOf(each) === 'true' && !isProtected(each)),
  );
  if (asking.length === 0) return [];
  return [
    finding(
      'webhook-missing',
      `${listNames(asking.map(({ namespace, name }) => `${namespace}/${name}`))} request the sidecar, but there is neither a webhook ${WEBHOOK} nor a mutating policy of sidegate`,
      'install the chart: helm install sidegate chart/sidegate',
    ),
  ];
}

function checkCa({ clientConfig }: Webhook, { now }: Facts): Finding[] {
  const text = Buffer.from(clientConfig.caBundle ?? '', 'base64').toString('latin1');
  const ends = [...text.matchAll(CERTIFICATE)].flatMap(([pem]) => toEnd(pem));
  if (ends.length === 0) {
    const what = text === '' ? 'has no caBundle' : 'has a caBundle without a certificate';
    const fix =
      'the rotation controller or cert-manager writes it: check the log of the rotation controller, or of the cainjector of cert-manager';
    return [finding('webhook-without-ca', `the webhook ${WEBHOOK} ${what}: the API server cannot call it`, fix)];
  }
  const last = Math.max(...ends);
  const fix = 'check the log of the rotation controller, or cert-manager: the CA should have been renewed by now';
  if (last <= now) return [finding('ca-ended', `the CA certificate of the webhook expired at ${toInstant(last)}`, fix)];
  return last - now < TWO_WEEKS_MS
    ? [finding('ca-ends-soon', `the CA certificate of the webhook expires at ${toInstant(last)}`, fix)]
    : [];
}

function toEnd(pem: string): number[] {
  try {
    return [Date.parse(new X509Certificate(pem).validTo)];
  } catch {
    return [];
  }
}

/** Whether the API server injects by a policy, which cannot be down. */
function isByPolicy({ mutatingPolicies, mutatingBindings }: Facts): boolean {
  const bound = itemsOf(mutatingBindings).map(({ spec }) => spec.policyName);
  return itemsOf(mutatingPolicies).some(({ metadata }) => bound.includes(metadata.name));
}

/** The bindings that deny by the chart's policy with this ending of its name. */
function findDenying(ending: string, facts: Facts): readonly PolicyBinding[] {
  const names = itemsOf(facts.policies).flatMap(({ metadata: { name } }) => (name.endsWith(ending) ? [name] : []));
  const denies = ({ spec }: PolicyBinding): boolean => spec.validationActions?.includes('Deny') === true;
  return itemsOf(facts.bindings).filter((each) => denies(each) && names.includes(each.spec.policyName));
}

/** Whether a binding applies to all pods of a namespace with these labels, or of every namespace. */
function isWhole({ spec: { matchResources = {} } }: PolicyBinding, labels?: Readonly<Record<string, string>>): boolean {
  const { namespaceSelector = {}, objectSelector = {}, resourceRules = [], excludeResourceRules = [] } = matchResources;
  const isInside = labels === undefined ? isEverything(namespaceSelector) : fits(namespaceSelector, labels);
  return isInside && isEverything(objectSelector) && resourceRules.length + excludeResourceRules.length === 0;
}

/** The namespaces in which the API server injects by a policy. */
function findSelectors({ mutatingBindings }: Facts): readonly Scope[] {
  return itemsOf(mutatingBindings).map(({ spec }) => spec.matchResources ?? {});
}

function checkFailure({ failurePolicy = 'Fail', namespaceSelector = {} }: Scope, facts: Facts): Finding[] {
  if ('unknown' in facts.policies || 'unknown' in facts.bindings) return [];
  const denying = findDenying('-protected', facts);
  const [narrow] = denying;
  const left = itemsOf(facts.namespaces).filter(
    ({ metadata: { labels = {} } }) => fits(namespaceSelector, labels) && !denying.some((each) => isWhole(each, labels)),
  );
  const isEverywhere = 'unknown' in facts.namespaces ? denying.some((each) => isWhole(each)) : left.length === 0;
  if (narrow !== undefined && isEverywhere) return [];
  const names = listNames(left.map(({ metadata }) => metadata.name));
  const where = narrow === undefined || names === '' ? '' : ` in ${names}`;
  const all = narrow === undefined ? ['them', 'a pod'] : ['all of them', 'all pods'];
  const why =
    narrow === undefined ? '' : `: the binding ${narrow.metadata.name} denies only some pods, because of its matchResources`;
  const fix =
    narrow === undefined
      ? 'set admission.protect: true in the values of the chart (Kubernetes 1.30 and newer)'
      : `remove matchResources from the binding ${narrow.metadata.name}`;
  if (failurePolicy === 'Ignore') {
    const message = `while the injector does not respond, pods are created without the sidecar: failurePolicy is Ignore, and no policy denies ${all[0]}${where}${why}`;
    return [finding('fails-open', message, `${fix}, or admission.failurePolicy: Fail`)];
  }
  return [
    finding('policy-missing', `no policy denies ${all[1]}${where} from which another webhook removed the sidecar${why}`, fix),
  ];
}

function checkPolicies({ policies, bindings }: Facts): Finding[] {
  if ('unknown' in bindings) return [];
  return itemsOf(policies).flatMap(({ metadata: { name } }) => {
    const own = bindings.items.filter(({ spec }) => spec.policyName === name);
    if (own.some(({ spec }) => spec.validationActions?.includes('Deny'))) return [];
    const message =
      own.length === 0
        ? `the policy ${name} has no binding, so it has no effect`
        : `the policy ${name} only reports (${own.flatMap(({ spec }) => spec.validationActions ?? []).join(', ')}) and denies nothing`;
    return [finding('policy-unbound', message, 'bind it with validationActions: [Deny], as the chart does')];
  });
}

function checkEnforcement(facts: Facts): Finding[] {
  if ('unknown' in facts.policies || 'unknown' in facts.bindings) return [];
  const denying = findDenying('-enforced', facts);
  const enforced = itemsOf(facts.namespaces).filter(
    ({ metadata: { labels } }) => labels?.[ENFORCE_LABEL] === 'true' && !denying.some((each) => isWhole(each, labels)),
  );
  if (enforced.length === 0) return [];
  const names = listNames(enforced.map(({ metadata }) => metadata.name));
  return [
    finding(
      'enforce-without-policy',
      `the label ${ENFORCE_LABEL} of ${names} has no effect: no policy denies pods without the sidecar`,
      'set admission.enforce: true in the values of the chart',
    ),
  ];
}

/** The policies act on `true` only. */
function checkEnforceLabels({ namespaces }: Facts): Finding[] {
  return itemsOf(namespaces).flatMap(({ metadata: { name, labels } }) => {
    const value = labels?.[ENFORCE_LABEL];
    if (value === undefined || value === 'true' || value === 'false') return [];
    const message = `the label ${ENFORCE_LABEL} of the namespace ${name} is "${value}", which has no effect: pods without the sidecar are not denied`;
    return [finding('label-value', message, 'write "true", in lower case and in quotes')];
  });
}

function checkInjectors(webhooks: readonly Webhook[], { injectors }: Facts): Finding[] {
  const all = itemsOf(injectors);
  const [first] = all;
  if ('unknown' in injectors || all.some(({ status }) => (status?.readyReplicas ?? 0) > 0)) return [];
  if (first === undefined) {
    const service = webhooks.find(({ clientConfig }) => clientConfig.service !== undefined)?.clientConfig.service;
    if (service === undefined) return [];
    const message = `the webhook ${WEBHOOK} calls an injector in the namespace ${service.namespace}, which has no Deployment of it`;
    const fix = 'install the chart again, or uninstall it completely: docs/how-to/uninstall.md';
    return [finding('injector-down', message, fix)];
  }
  const { namespace, name } = first.metadata;
  return [
    finding(
      'injector-down',
      `no replica of the injector ${namespace}/${name} is ready`,
      `kubectl -n ${namespace} describe deployment ${name}`,
    ),
  ];
}
