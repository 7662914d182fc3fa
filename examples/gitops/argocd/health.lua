-- The health of a Queue or a Counter, for Argo CD: from its conditions, as kstatus reads them.
--
-- Argo CD runs this with the resource as `obj` (resource.customizations.health.headgate.io_Queue, and _Counter;
-- kustomization.yaml beside this file makes both keys). It needs no library. docs/reference.md has all reasons.

local conditions = {}
if obj.status ~= nil and obj.status.conditions ~= nil then
  for _, condition in ipairs(obj.status.conditions) do
    conditions[condition.type] = condition
  end
end

local function is_true(type)
  return conditions[type] ~= nil and conditions[type].status == "True"
end

local function describe(condition)
  return condition.reason .. ": " .. condition.message
end

-- Conditions outside Ready, since a failed nightly job is not a failed rollout; they are shown all the same.
local function remarks()
  local text = ""
  for _, type in ipairs({ "LanesHealthy", "RepairHealthy", "BulkReady", "CollectionHealthy" }) do
    if conditions[type] ~= nil and conditions[type].status == "False" then
      text = text .. " " .. describe(conditions[type])
    end
  end
  return text
end

local ready = conditions["Ready"]

if obj.metadata.deletionTimestamp ~= nil then
  local message = "It is being deleted."
  if ready ~= nil and ready.reason == "Deleting" then
    message = describe(ready)
  end
  return { status = "Progressing", message = message }
end
if ready == nil then
  return { status = "Progressing", message = "The operator has not seen it yet." }
end
if obj.status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this change yet." }
end
if is_true("Stalled") then
  return { status = "Degraded", message = describe(conditions["Stalled"]) }
end
if is_true("Reconciling") then
  return { status = "Progressing", message = describe(conditions["Reconciling"]) }
end
if ready.status == "True" then
  return { status = "Healthy", message = describe(ready) .. remarks() }
end
if ready.reason == "Paused" then
  return { status = "Suspended", message = describe(ready) }
end
if ready.status == "False" then
  return { status = "Degraded", message = describe(ready) }
end
return { status = "Progressing", message = describe(ready) }
