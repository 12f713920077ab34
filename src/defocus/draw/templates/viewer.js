const view=document.querySelector("dialog"),all=[...document.querySelectorAll(".pair")];
if(view&&all.length){let now=0;const [under,over]=view.querySelectorAll("img"),stage=view.querySelector(".stage"),
slide=view.querySelector("input"),wipe=()=>stage.style.setProperty("--x",slide.value+"%"),
show=n=>{now=(n+all.length)%all.length;const one=all[now],[a,b]=one.querySelectorAll("img");under.src=a.src;
over.src=b.src;view.querySelector("h3").textContent=one.dataset.id;
view.querySelector("dl").innerHTML=one.querySelector("dl").innerHTML};
all.forEach((one,n)=>{one.addEventListener("click",()=>{show(n);slide.value=50;wipe();view.showModal()});
one.addEventListener("keydown",e=>{if(e.key==="Enter")one.click()})});
slide.addEventListener("input",wipe);
stage.addEventListener("pointermove",e=>{const r=stage.getBoundingClientRect();
slide.value=100*(e.clientX-r.left)/r.width;wipe()});
view.addEventListener("click",e=>{if(e.target===view||e.target.className==="close")view.close()});
view.addEventListener("keydown",e=>{const step={ArrowLeft:-1,ArrowRight:1}[e.key];
if(step){e.preventDefault();show(now+step)}})}
